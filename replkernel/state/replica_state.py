"""What one process holds of the shared state: captures and rebuilds work on it together.

Law: `lock` guards the table and what follows from it, for deltas come in on any thread; the namespace is only
touched inside `at_work`.
"""

from __future__ import annotations

import gc
import threading
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from replkernel.records import ComponentId, Making, Mark, ReplicaId, Seq, Unaudited
from replkernel.state.capture.dump import Dump, Mode, roots_of
from replkernel.state.capture.shipping import Known as KnownChunks
from replkernel.state.capture.survey_order import ATOMS, NO_ATOM, Known, is_heavy, probe
from replkernel.state.component_table import ComponentTable
from replkernel.state.process.seldom_readers import collecting
from replkernel.state.python import finalizers
from replkernel.state.python.kinds import kind_of, module_of, type_name
from replkernel.state.python.modules import importable
from replkernel.state.world import World

ATOM_BYTES_MAX = 1024
_SMALL_ATOMS = frozenset({str, bytes})


def atom_of(value: Any) -> Any:
    """Return `value` when the same object is the same value, and keeping it keeps nothing else alive."""
    kind = kind_of(value)
    if kind in ATOMS or (kind in _SMALL_ATOMS and len(value) <= ATOM_BYTES_MAX):
        return value
    if kind is types.ModuleType and importable(value) is not None:
        return value
    return NO_ATOM


class Baseline:
    """The components as of the last capture or rebuild here, to tell what is unchanged.

    They are known by their roots: variables, and classes as ``class:…``. It holds digests and small immutable
    atoms, no other user object.
    """

    def __init__(self) -> None:
        self.by_root: dict[str, Known] = {}
        self.cids: dict[str, ComponentId] = {}
        self.chunks: dict[ComponentId, KnownChunks] = {}
        self.heavy: set[str] = set()
        """The first roots of the components that take long to look at."""

    def unchanged(self, dump: Dump) -> ComponentId | None:
        """Return the id of the component that a unit is, when it is as it was."""
        roots = roots_of(dump)
        known = self.by_root.get(roots[0])
        if known is None or known.fingerprint != dump.fingerprint or known.roots != roots:
            return None
        return self.cids[roots[0]]

    def seen(self, dump: Dump, namespace: Mapping[str, Any]) -> None:
        """Note what looking at an unchanged unit took, and its variables' looks from outside."""
        known = self.by_root[roots_of(dump)[0]]
        known.seconds = dump.seconds
        if is_heavy(dump.seconds):
            known.probe = probe(namespace, known.roots)
            self.heavy.add(known.roots[0])
        elif self.heavy:
            self.heavy.discard(known.roots[0])

    def set(self, cid: ComponentId, dump: Dump, namespace: Mapping[str, Any], chunks: KnownChunks) -> None:
        """Remember a unit under its component id."""
        roots = roots_of(dump)
        value = namespace.get(dump.roots[0], NO_ATOM) if dump.roots else None
        atom = atom_of(value) if len(roots) == 1 and not dump.own_classes else NO_ATOM
        mode = Mode(dump.mode.careful and bool(dump.losses), dump.mode.deep)
        looks = 0
        if is_heavy(dump.seconds):
            looks = probe(namespace, roots)
            self.heavy.add(roots[0])
        known = Known(
            roots,
            dump.fingerprint,
            mode,
            tuple(dump.losses),
            atom,
            dump.objects(),
            dump.seconds,
            looks,
        )
        for root in roots:
            self.by_root[root] = known
            self.cids[root] = cid
        self.chunks[cid] = chunks

    def forget_roots(self, roots: Iterable[str]) -> None:
        """Forget roots, and the components they belonged to when these have none left."""
        for root in roots:
            self.by_root.pop(root, None)
            self.cids.pop(root, None)
            self.heavy.discard(root)

    def forget_components(self, cids: Iterable[ComponentId]) -> None:
        """Forget components with all their roots."""
        gone = set(cids)
        if not gone:
            return
        self.forget_roots([root for root, cid in self.cids.items() if cid in gone])
        for cid in gone:
            self.chunks.pop(cid, None)


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


class LeftBehind:
    """The variables of one namespace that were left behind; `names` are all of them, bound anew or not."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self.names: set[str] = set()
        self.disordered = False
        """Whether the namespace has lost its order by what was left out."""
        self._before: list[str] = []
        self.classes: list[type] = []
        """The classes that only waiting components refer to: they are held weakly everywhere else."""
        self.unchecked: tuple[str, ...] = ()
        """What the last delta received leaves to be checked: who refers to a class among it may come yet."""

    def leave(self, names: Iterable[str]) -> list[str]:
        """Leave these names behind and no others; return those whose present values are to go."""
        before, self.names = self.names, set(names)
        self.disordered = self.disordered or bool(self.names)
        self._before = list(self._namespace)
        return [name for name in self.names if name in self._namespace and name not in before]

    def keep(self, names: Iterable[str]) -> None:
        """Forget all but `names`: the others are here, or belong to something else."""
        self.names.intersection_update(names)

    def settle(self, received: tuple[str, ...] | None, known: tuple[str, ...]) -> tuple[str, ...] | None:
        """Note that nothing is left behind; return the order in which the namespace is to be put."""
        self.names.clear()
        disordered, self.disordered = self.disordered, False
        return known if received is None and disordered else received

    def forget(self, names: Iterable[str]) -> None:
        """Note that these names have their values."""
        self.names.difference_update(names)

    def bound_anew(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that were left behind and that the user has bound since."""
        return [name for name in names if name in self.names and name in self._namespace]

    def awaits(self, name: str) -> bool:
        """Tell whether a name is bound to nothing because its value waits."""
        return name in self.names and name not in self._namespace

    def _inserted_again(self, names: Sequence[str]) -> set[str]:
        """Return the names that were deleted and bound again since `leave`: they have moved to the end."""
        places = {name: place for place, name in enumerate(self._before)}
        last = -1
        again: set[str] = set()
        for name in names:
            place = places.get(name, last)
            if place < last:
                again.add(name)
            last = max(last, place)
        return again

    def order(self, names: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
        """Return the order that `names` have with those left behind, which had a place in `wanted`."""
        if not self.names and not self.disordered:
            return tuple(names)
        bound = set(names)
        placed = (bound - self._inserted_again(names)) | (self.names - bound)
        known = [name for name in wanted if name in placed]
        listed = set(known)
        return (*known, *(name for name in names if name not in listed))


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
