"""What waits to be rebuilt while cells run, and what a cell reaches of it.

Law: a name that waits is bound to nothing or to what the user bound to it since; never to a stale value.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from replkernel.records import ComponentId, ComponentRecord
from replkernel.state.analysis.values import holds_no_code
from replkernel.state.component_table import PROCESS_PREFIX
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.replica_state import ReplicaState
from replkernel.state.restore.reached import Reached, classes_behind, reached


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
        """Keep the classes that waiting components refer to: here, nothing else may refer to them yet."""
        with self._lock:
            reads = [read for record in self._table.waiting() for read in record.reads]
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
