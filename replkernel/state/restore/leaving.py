"""What waits to be rebuilt while cells run, what a cell reaches of it, and the names that are left behind.

Law: a name that waits is bound to nothing or to what the user bound to it since; never to a stale value.
What a cell reaches is followed by the components' records alone, and what cannot be followed is anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import msgspec

from replkernel.records import ComponentId, ComponentRecord
from replkernel.state.analysis.mentions import ANYTHING
from replkernel.state.analysis.values import holds_no_code
from replkernel.state.component_table import PROCESS_PREFIX, ComponentTable
from replkernel.state.patches.places import PREFIX as PLACE_PREFIX
from replkernel.state.python.class_registry import ROOT_PREFIX

if TYPE_CHECKING:
    from replkernel.state.replica_state import ReplicaState


class Leaving:
    """Leaves components of what one process holds behind."""

    def __init__(self, replica_state: ReplicaState) -> None:
        self._replica_state = replica_state
        self._table = replica_state.table
        self._left = replica_state.left
        self._lock = replica_state.lock
        self._touched: set[str] = set()
        """What the cells reached after which something is still to be checked."""
        self._asked: set[str] = set()
        """What the next cells reach."""

    # -- what waits ----------------------------------------------------------------------------------

    def waiting_names(self) -> list[str]:
        """Return the variables that wait to be rebuilt, but for those that have tombstones meanwhile."""
        if not self._table.pending:
            return []
        with self._lock:
            return [
                name
                for record in self._table.waiting()
                if record.cid not in self._replica_state.unhealed and has_only_variables(record)
                for name in self._table.owned_names(record)
            ]

    def pending_of(self, cids: AbstractSet[ComponentId]) -> list[ComponentId]:
        """Return those of `cids` that wait to be rebuilt."""
        with self._lock:
            return [cid for cid in self._table.pending if cid in cids]

    def behind(self) -> list[ComponentRecord]:
        """Return the components that wait to be rebuilt, the smallest first."""
        unhealed = self._replica_state.unhealed
        with self._lock:
            waiting = [record for record in self._table.waiting() if record.cid not in unhealed]
        return sorted(waiting, key=lambda record: record.state_bytes)

    def leave_rest(self) -> None:
        """Leave behind what was not rebuilt: nobody must find a stale value under its names."""
        replica_state = self._replica_state
        with self._lock:
            names = self.waiting_names()
            cids = [cid for cid in self._table.pending if cid not in replica_state.unhealed]
        gone = self._left.leave(names)
        replica_state.drop_quietly([replica_state.namespace[name] for name in gone])
        for name in gone:
            del replica_state.namespace[name]
        replica_state.baseline.forget_components(cids)
        replica_state.baseline.forget_roots(gone)

    def needed_classes(self) -> frozenset[ComponentId]:
        """Return the classes, rebuilt or not, that waiting components refer to."""
        with self._lock:
            reads = [read for record in self._table.waiting() for read in record.reads]
            return classes_behind(self._table, reads)

    def hold_classes(self) -> None:
        """Keep the classes that waiting components refer to, and those of what is left to be checked.

        Here, nothing else may refer to them yet.
        """
        with self._lock:
            reads = [read for record in self._table.waiting() for read in record.reads]
            reads += self._left.unchecked
        ids = (read.removeprefix(ROOT_PREFIX) for read in reads if read.startswith(ROOT_PREFIX))
        classes = self._replica_state.world.classes
        self._left.classes = [cls for cls in map(classes.find, ids) if cls is not None]

    # -- what a cell reaches -------------------------------------------------------------------------

    def reach(self, reads: Iterable[str], binds: Iterable[str] = ()) -> Reached:
        """Return the components that a cell reaches which reads (or deletes) and binds these names."""
        with self._lock:
            reads, binds = frozenset(reads), frozenset(binds)
            found = reached(self._table, reads, binds, self._unsure())
            self._asked |= reads | binds | found.names
            return found

    def note_touched(self) -> None:
        """Note after a capture what the cells reached after which something is still to be checked."""
        self._touched = self._touched | self._asked if self._replica_state.owed else set()
        self._asked = set()

    def _unsure(self) -> set[str]:
        """Return the names of which the table may not tell what their code mentions.

        These are what earlier cells reached and no capture has looked at since, but for plain values.
        """
        namespace = self._replica_state.namespace
        owed = {left.name for left in self._replica_state.owed} & self._touched
        return {name for name in owed if not holds_no_code(namespace.get(name))}


def has_only_variables(record: ComponentRecord) -> bool:
    """Tell whether a component is neither process state nor classes nor registrations."""
    return not record.cid.startswith(PROCESS_PREFIX) and not any(":" in name for name in record.names)


OPEN_PARTS = frozenset({
    "@ipython_hooks", "@ipython_magics", "@ipython_extensions", "@signals",
})  # fmt: skip
"""Process state with which code of the notebook may run that no cell mentions."""

PLAIN_PACKAGES = frozenset({"numpy", "pandas", "polars", "pyarrow", "scipy", "torch"})
"""Libraries whose objects run no code of the notebook when they are let go."""

OUT_NAMES = frozenset({"Out", "_oh"})
UNDERS = frozenset({"_", "__", "___"})


class Reached(msgspec.Struct, frozen=True):
    """The components and names that a cell can reach; `anything`: all of them."""

    cids: frozenset[ComponentId] = frozenset()
    names: frozenset[str] = frozenset()
    anything: bool = False


EVERYTHING = Reached(anything=True)


def reached(
    table: ComponentTable,
    reads: Iterable[str],
    binds: Iterable[str] = (),
    unsure: AbstractSet[str] = frozenset(),
) -> Reached:
    """Return what is reached from the names that a cell reads or deletes, and those that it binds.

    A name that is bound anew lets go of what it held, which matters only when that can run code. `unsure`
    are names of which the table may not be up to date: what they reach is not known.
    """
    if not OPEN_PARTS.isdisjoint(table.records) or table.coded_parts:
        return EVERYTHING
    walk = _Walk(table, unsure)
    walk.names(name for name in table.owners if name.startswith(PLACE_PREFIX))
    walk.names(reads)
    for name in binds:
        record = _record_of(table, name)
        if record is not None and not _lets_go_quietly(record):
            walk.names((name,))
    return walk.result()


def classes_behind(table: ComponentTable, reads: Iterable[str]) -> frozenset[ComponentId]:
    """Return the components of the classes among `reads`, and of the classes that these refer to."""
    found: set[ComponentId] = set()
    waiting = [read for read in reads if read.startswith(ROOT_PREFIX)]
    while waiting:
        record = _record_of(table, waiting.pop())
        if record is not None and record.cid not in found:
            found.add(record.cid)
            waiting.extend(read for read in record.reads if read.startswith(ROOT_PREFIX))
    return frozenset(found)


class _Walk:
    def __init__(self, table: ComponentTable, unsure: AbstractSet[str]) -> None:
        self._table = table
        self._unsure = unsure
        self._cids: set[ComponentId] = set()
        self._names: set[str] = set()
        self._anything = False

    def names(self, names: Iterable[str]) -> None:
        """Follow names, and what code behind them mentions."""
        waiting = list(names)
        while waiting and not self._anything:
            name = waiting.pop()
            if name in self._names:
                continue
            self._names.add(name)
            if name == ANYTHING or name in self._unsure:
                self._anything = True
            if name in OUT_NAMES:
                waiting.extend(root for root in self._table.owners if _is_output(root))
            record = _record_of(self._table, name)
            if record is not None and record.cid not in self._cids:
                self._cids.add(record.cid)
                self._anything = self._anything or not self._unsure.isdisjoint(record.names)
                waiting.extend(record.reads)
                waiting.extend(filter(None, map(_variable_of, record.names)))

    def result(self) -> Reached:
        """Return what was reached."""
        if self._anything:
            return EVERYTHING
        return Reached(frozenset(self._cids), frozenset(self._names))


def _record_of(table: ComponentTable, name: str) -> ComponentRecord | None:
    cid = table.owners.get(name)
    return None if cid is None else table.records.get(cid)


def _lets_go_quietly(record: ComponentRecord) -> bool:
    return not record.reads and not record.pins and PLAIN_PACKAGES.issuperset(record.modules)


def _variable_of(root: str) -> str:
    """Return the variable under which pickle and others look a class up; empty for what is no class."""
    if not root.startswith(ROOT_PREFIX):
        return ""
    return root.removeprefix(ROOT_PREFIX).partition("@")[0].partition(".")[0]


def _is_output(root: str) -> bool:
    """Tell whether a name holds a value of Out."""
    return root in UNDERS or (root.startswith("_") and root[-1:].isdigit())
