"""What one process holds of the shared state: captures and rebuilds work on it together.

Law: `lock` guards the table and what follows from it, for deltas come in on any thread; the namespace is only
touched inside `at_work`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from replkernel.records import ComponentId, Mark, ReplicaId, Seq, Unaudited
from replkernel.state.capture.baseline import Baseline
from replkernel.state.capture.provenance import Provenance
from replkernel.state.component_table import ComponentTable
from replkernel.state.process.seldom_readers import collecting
from replkernel.state.python import finalizers
from replkernel.state.restore.left_behind import LeftBehind
from replkernel.state.world import World


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
