"""What one process holds of the shared state: captures and rebuilds work on it together.

Law: `lock` guards the table and what follows from it, for deltas come in on any thread; the namespace is only
touched inside `at_work`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from replkernel.records import ComponentId, Making, Mark, ReplicaId, Seq, Unaudited
from replkernel.state.capture.baseline import Baseline
from replkernel.state.component_table import ComponentTable
from replkernel.state.process.seldom_readers import collecting
from replkernel.state.python import finalizers
from replkernel.state.python.class_registry import module_of
from replkernel.state.python.paths import type_name
from replkernel.state.restore.left_behind import LeftBehind
from replkernel.state.world import World


class Provenance:
    """In which cell each variable was bound to what it has: what a loss tells its user to run again.

    Objects are known by their ids, and not kept; what another process made is known by its records. `late`
    are the first cells of what was left to an audit.
    """

    def __init__(self, namespace: Mapping[str, Any], table: ComponentTable) -> None:
        self._namespace = namespace
        self._table = table
        self._ids: dict[str, int] = {}
        self.late: dict[str, int] = {}

    def of(self, roots: Iterable[str], cell: int) -> tuple[Making, ...]:
        """Return what is to be said of the roots of a component that is told in `cell`."""
        told: list[Making] = []
        namespace = self._namespace
        for root in roots:
            made = self.cell_of(root, cell)
            kind = type(namespace[root]) if root in namespace else object
            name = "" if module_of(kind) == "builtins" else type_name(namespace[root])
            if made != cell or name:
                told.append(Making(root, 0 if made == cell else made, name))
        return tuple(told)

    def cell_of(self, root: str, cell: int) -> int:
        """Return the cell in which a root was bound to what it has; `cell` is the one that is told."""
        table, namespace = self._table, self._namespace
        owner = table.records.get(table.owners.get(root, ""))  # type: ignore[call-overload]
        if owner is None or (root in namespace and self._ids.get(root) != id(namespace[root])):
            return self.late.get(root, cell)
        return int(owner.making(root).cell)

    def bound(self, roots: Iterable[str]) -> None:
        """Note that roots are bound as the records say."""
        namespace = self._namespace
        self._ids.update((root, id(namespace[root])) for root in roots if root in namespace)

    def left(self, unseen: Iterable[str], cell: int) -> None:
        """Note what the capture after `cell` leaves to an audit."""
        self.late = {root: self.late.get(root, cell) for root in unseen}


class ReplicaState:
    """The namespace of one process with everything that is known of it."""

    def __init__(self, namespace: dict[str, Any], replica: ReplicaId) -> None:
        self.namespace = namespace
        self.replica = replica
        self.world = World(namespace, replica)
        self.table = ComponentTable()
        self.baseline = Baseline()
        self.provenance = Provenance(namespace, self.table)
        self.world.bound_in = self.provenance.cell_of
        self.left = LeftBehind(namespace)
        self.lock = threading.RLock()
        self.order: tuple[str, ...] = ()
        """The order of the names as of the last capture or rebuild."""
        self.mark = Mark(Seq(0))
        self.owed: tuple[Unaudited, ...] = ()
        """What was not checked after the last capture here."""
        self.unhealed: dict[ComponentId, tuple[str, ...]] = {}
        """Components whose names are tombstones until their bytes, or a package, are here."""
        self._working = threading.RLock()
        self._watched: list[Any] = []
        """What was let go of, as long as a weak reference that is still to be replaced would tell of it."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have the namespace alone, for a capture or a rebuild: a subshell may have to rebuild as well."""
        with self._working, _no_garbage_collection(), self.world.classes.untouched():
            yield

    def drop_quietly(self, values: list[Any]) -> None:
        """Let go of objects that live on elsewhere without running their finalizers."""
        world = self.world
        self._watched += finalizers.silence(values, world.classes.living(), world.seeds.ids)

    def drop_watched(self, *, whole: bool) -> None:
        """Let go of what had watchers; `whole` says that these are all replaced by now."""
        self._watched = finalizers.outlived(self._watched, finally_=whole)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep a collection from running user finalizers at a moment at which none would have run."""
    enabled = gc.isenabled()
    collecting.append(enabled)
    gc.disable()
    try:
        yield
    finally:
        collecting.pop()
        if enabled:
            gc.enable()
