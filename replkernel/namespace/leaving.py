"""The part of StateCapture that leaves components behind: what waits, and what a cell reaches of it.

Law: a name that waits is bound to nothing or to what the user bound to it since; never to a stale value.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from replkernel.namespace.analysis_parts.values import holds_no_code
from replkernel.namespace.baseline import Baseline
from replkernel.namespace.class_registry import ROOT_PREFIX
from replkernel.namespace.component_table import PROCESS_PREFIX, ComponentTable
from replkernel.namespace.left_behind import LeftBehind, ReadAhead
from replkernel.namespace.reached import Reached, classes_behind, reached
from replkernel.namespace.world import World
from replkernel.records import ComponentId, ComponentRecord, Unaudited


class Leaving:
    """What a state capture needs to rebuild some components and leave the rest behind."""

    _namespace: dict[str, Any]
    _world: World
    _table: ComponentTable
    _baseline: Baseline
    _left: LeftBehind
    _ahead: ReadAhead
    _lock: threading.RLock
    _owed: Sequence[Unaudited]
    _touched: set[str]
    _asked: set[str]
    _unhealed: Mapping[ComponentId, tuple[str, ...]]

    def _drop_quietly(self, values: list[Any]) -> None:
        raise NotImplementedError

    def _still_waiting(self, records: Sequence[ComponentRecord]) -> list[ComponentRecord]:
        """Return those of `records` that nobody has rebuilt meanwhile, nor replaced by newer ones."""
        with self._lock:
            known = set(map(id, records))
            return [record for record in self._table.waiting() if id(record) in known]

    def _chosen(
        self,
        waiting: Sequence[ComponentRecord],
        wanted: AbstractSet[ComponentId] | None,
        *,
        everything: bool,
    ) -> list[ComponentRecord]:
        """Return what a rebuild must not put off: classes and process state are small and may be needed."""
        if wanted is None and not everything:
            return []
        return [
            record
            for record in waiting
            if everything or record.cid in (wanted or ()) or not _has_only_variables(record)
        ]

    def waiting_names(self) -> list[str]:
        """Return the variables that wait to be rebuilt, but for those that have tombstones meanwhile."""
        if not self._table.pending:
            return []
        with self._lock:
            return [
                name
                for record in self._table.waiting()
                if record.cid not in self._unhealed and _has_only_variables(record)
                for name in self._table.owned_names(record)
            ]

    def _leave_rest(self) -> None:
        """Leave behind what was not rebuilt: nobody must find a stale value under its names."""
        with self._lock:
            names = self.waiting_names()
            cids = [cid for cid in self._table.pending if cid not in self._unhealed]
        gone = self._left.leave(names)
        self._drop_quietly([self._namespace[name] for name in gone])
        for name in gone:
            del self._namespace[name]
        self._baseline.forget_components(cids)
        self._baseline.forget_roots(gone)

    def _needed_classes(self) -> frozenset[ComponentId]:
        """Return the classes, rebuilt or not, that waiting components refer to."""
        with self._lock:
            reads = [read for record in self._table.waiting() for read in record.reads]
            return classes_behind(self._table, reads)

    def _hold_classes(self) -> None:
        """Keep the classes that waiting components refer to: here, nothing else may refer to them yet."""
        with self._lock:
            reads = [read for record in self._table.waiting() for read in record.reads]
        ids = (read.removeprefix(ROOT_PREFIX) for read in reads if read.startswith(ROOT_PREFIX))
        self._left.classes = [cls for cls in map(self._world.classes.find, ids) if cls is not None]

    # -- what a cell reaches -------------------------------------------------------------------------

    @property
    def left_behind(self) -> AbstractSet[str]:
        """Return the variables that are bound to nothing because no cell has needed them yet."""
        return self._left.names

    def awaits(self, name: str) -> bool:
        """Tell whether a variable is bound to nothing because its value waits."""
        return self._left.awaits(name)

    def reach(self, reads: Iterable[str], binds: Iterable[str] = ()) -> Reached:
        """Return the components that a cell reaches which reads (or deletes) and binds these names."""
        with self._lock:
            reads, binds = frozenset(reads), frozenset(binds)
            found = reached(self._table, reads, binds, self._unsure())
            self._asked |= reads | binds | found.names
            return found

    def _note_touched(self) -> None:
        """Note after a capture what the cells reached after which something is still to be checked."""
        self._touched = self._touched | self._asked if self._owed else set()
        self._asked = set()

    def _unsure(self) -> set[str]:
        """Return the names of which the table may not tell what their code mentions.

        These are what earlier cells reached and no capture has looked at since, but for plain values.
        """
        owed = {left.name for left in self._owed} & self._touched
        return {name for name in owed if not holds_no_code(self._namespace.get(name))}

    def pending_of(self, cids: AbstractSet[ComponentId]) -> list[ComponentId]:
        """Return those of `cids` that wait to be rebuilt."""
        with self._lock:
            return [cid for cid in self._table.pending if cid in cids]

    def behind(self) -> list[ComponentRecord]:
        """Return the components that wait to be rebuilt, the smallest first."""
        with self._lock:
            waiting = [record for record in self._table.waiting() if record.cid not in self._unhealed]
        return sorted(waiting, key=lambda record: record.state_bytes)

    @property
    def ahead(self) -> ReadAhead:
        """Return the reader of what was left behind."""
        return self._ahead


def _has_only_variables(record: ComponentRecord) -> bool:
    """Tell whether a component is neither process state nor classes nor registrations."""
    return not record.cid.startswith(PROCESS_PREFIX) and not any(":" in name for name in record.names)
