"""Which components a cell can reach, through what their own code mentions: the closure over the records.

Law: pure, and asked without looking at objects that are not here yet. What cannot be followed is anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import msgspec

from replkernel.records import ComponentId, ComponentRecord
from replkernel.state.analysis.mentions import ANYTHING
from replkernel.state.component_table import ComponentTable
from replkernel.state.patches.places import PREFIX as PLACE_PREFIX
from replkernel.state.python.class_registry import ROOT_PREFIX

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
