"""StateCapture: what changed in the user namespace since the last cell, and the way into another process.

Law: the fingerprint of everything decides what changed; a capture alters nothing and keeps nothing alive.
`capture` and `rebuild` run on the main thread, `receive` on any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from replkernel.errors import StoreError
from replkernel.objects.cache import BlobCache
from replkernel.records import (
    BlobRef,
    ComponentId,
    ComponentRecord,
    Delta,
    Fence,
    Mark,
    ReplicaId,
    Seq,
    Unaudited,
    payload_blobs,
)
from replkernel.state.capture.budget import EVERYTHING, Terms
from replkernel.state.capture.changes import Changes, Room, Unstored
from replkernel.state.capture.shipping import Shipper
from replkernel.state.capture.survey import Survey
from replkernel.state.component_table import Devices, Unfaithful
from replkernel.state.names import Names, UserNames
from replkernel.state.process.parts import ProcessPart
from replkernel.state.process.travelling import PartFamily, ProcessState
from replkernel.state.python.sqlite3 import watch as sqlite_watch
from replkernel.state.replica_state import ReplicaState
from replkernel.state.restore.incoming import ReadAhead
from replkernel.state.restore.leaving import Leaving
from replkernel.state.restore.rebuild import RebuildReport
from replkernel.state.restore.restoration import Restoration
from replkernel.state.state_rows import TableRow, rows_of
from replkernel.state.verify.prover import Prover

ORDER_MAX = 100_000
"""Names beyond this number keep no order."""


class StateCapture:
    """The state of one kernel process, as its replicas share it.

    `namespace` is the user namespace; `ignore` are names that are IPython's own; `parts` is the process's
    state beside the namespace, in the order in which it is to be loaded; `names` are those of the namespace,
    which others look at as well.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        cache: BlobCache,
        replica: ReplicaId,
        *,
        inline_bytes_max: int,
        ignore: frozenset[str],
        parts: Sequence[ProcessPart | PartFamily] = (),
        room: Room | None = None,
        names: Names | None = None,
    ) -> None:
        self.replica = replica
        self._cache = cache
        sqlite_watch.install()
        self.ahead = ReadAhead(cache)
        """The reader of what was left behind."""
        self._replica_state = held = ReplicaState(namespace, replica)
        self._process = ProcessState(parts)
        self.devices = Devices()
        """Whether what lies on a GPU may be rebuilt now."""
        self._shipper = Shipper(cache, inline_bytes_max, self.devices)
        prover = Prover(held, cache)
        self._verification = prover.verification
        self._leaving = Leaving(held)
        self.unstored = Unstored(room)
        """What the object store has no room for."""
        self._changes = Changes(
            held,
            self._leaving,
            self._verification,
            self._shipper,
            UserNames(names or Names(namespace), ignore),
            self.unstored,
        )
        self._restoration = Restoration(
            held, self._leaving, self._process, prover, cache, self.ahead, self.devices
        )
        self._checked = 0
        """The cell after which what is not owed was checked."""
        self._unfinished: set[str] = set()
        self._inherited: tuple[tuple[Unaudited, ...], int] = ((), 0)
        self.waiting_names = self._leaving.waiting_names
        self.pending_of = self._leaving.pending_of
        self.behind = self._leaving.behind
        self.reach = self._leaving.reach
        self.awaits = held.left.awaits

    # -- what others ask -----------------------------------------------------------------------------

    @property
    def applied(self) -> Seq:
        """Return the last execution whose delta was captured here or received."""
        return self._replica_state.mark.seq

    @property
    def mark(self) -> Mark:
        """Return the last execution, and which of its audits, that was captured here or received."""
        return self._replica_state.mark

    @property
    def has_heavy(self) -> bool:
        """Tell whether a component takes so long to look at that it matters what a cell mentions."""
        return bool(self._unfinished or self._replica_state.baseline.heavy)

    @property
    def has_new(self) -> bool:
        """Tell whether there are variables of which nothing has been captured, nor found to have no room."""
        known, held = self._replica_state.baseline.by_root, self.unstored.held
        names = self._changes.surveyed(self._changes.names())
        return any(name not in known and name not in held for name in names)

    @property
    def kept_back(self) -> AbstractSet[str]:
        """Return what is known to have changed and is told later, because the user wants it seldom."""
        return self._changes.kept_back

    @property
    def inherited(self) -> tuple[tuple[Unaudited, ...], int]:
        """Return what the last delta received leaves unchecked, and the cell after which that was so."""
        return self._inherited

    @property
    def left_behind(self) -> AbstractSet[str]:
        """Return the variables that are bound to nothing because no cell has needed them yet."""
        return self._replica_state.left.names

    @property
    def state_bytes(self) -> int:
        """Return the bytes of everything captured or received."""
        with self._replica_state.lock:
            return self._replica_state.table.state_bytes

    @property
    def components(self) -> int:
        """Return the number of components."""
        with self._replica_state.lock:
            return len(self._replica_state.table.records)

    @property
    def pending_bytes(self) -> int:
        """Return the bytes received and not rebuilt."""
        with self._replica_state.lock:
            return self._replica_state.table.pending_bytes

    @property
    def unfaithful(self) -> tuple[Unfaithful, ...]:
        """Return the components that were rebuilt here otherwise than captured."""
        with self._replica_state.lock:
            return self._verification.unfaithful

    @property
    def unproven(self) -> int:
        """Return how many components were rebuilt here without a proof."""
        with self._replica_state.lock:
            return self._verification.unproven

    def withheld(self) -> list[ComponentRecord]:
        """Return what waits because it lies on GPUs, and no cell with a lease runs here."""
        with self._replica_state.lock:
            return [one for one in self._replica_state.table.waiting() if not self.devices.may_have(one)]

    def table(self) -> list[TableRow]:
        """Return all components, largest first."""
        held = self._replica_state
        with held.lock:
            owed = {left.name: left for left in held.owed}
            return rows_of(held.table, held.namespace, held.baseline.by_root, owed)

    # -- capture ---------------------------------------------------------------------------------------

    def capture(self, seq: Seq, fence: Fence, execution_count: int, terms: Terms = EVERYTHING) -> Delta:
        """Return what changed since the last capture or rebuild, and take it as the new baseline.

        `execution_count` is the number of the cell as its user saw it. What the terms leave no time for is
        in the delta's `unaudited`. Raises StoreError when large state cannot be written to the blob cache;
        what was written is withdrawn, and the next capture tries again.
        """
        held, changes = self._replica_state, self._changes
        world = held.world
        world.seq, world.cell, world.late = seq, execution_count, held.provenance.late
        self.unstored.begin()
        with held.at_work():
            survey = Survey(world, held.baseline.by_root, terms)
            try:
                names = changes.names()
                known, patches = changes.surveyed(names), changes.patches()
                survey.look(known, self._unfinished, patches, changes.kept_back)
                if survey.settled and survey.changed:
                    survey.release()
                    survey = Survey(world, held.baseline.by_root, terms._replace(settled=False))
                    survey.look(known, self._unfinished, patches, changes.kept_back)
                parts, parts_gone = self._process.changed(), self._process.gone()
                part_records = self._process.ship(parts, self._shipper, seq)
                records, shipped, dropped = changes.compare(survey, seq)
                unaudited = self._unaudited(survey)
                self.unstored.settle(
                    survey.unseen, held.namespace, {left.name: left.cell for left in unaudited}
                )
                now = held.left.order(names, held.table.order or held.order)[:ORDER_MAX]
                order = None if now == held.order and not held.owed else now
                delta = Delta(
                    seq,
                    fence,
                    held.replica,
                    execution_count,
                    (*part_records, *records),
                    (*dropped, *parts_gone),
                    self.unstored.pins(held.namespace, held.replica, seq, execution_count),
                    order=order,
                    audit=terms.audit,
                    unaudited=unaudited,
                )
                self._process.told(parts, parts_gone)
                changes.commit(delta, shipped)
                held.owed, self._checked = unaudited, execution_count
                held.left.unchecked = ()
                self._leaving.hold_classes()
                held.provenance.left(survey.unseen, execution_count)
                self._leaving.note_touched()
                self._unfinished = (self._unfinished | survey.unfinished) & survey.unseen
                changes.kept_back &= survey.unseen
                self._cache.named(blob for one in delta.components for blob in payload_blobs(one.payload))
                self._cache.captured(cell=not terms.audit, whole=not unaudited)
                if not survey.gave_way:
                    survey.bind()
                return delta
            except StoreError:
                self._cache.withdraw()
                raise
            finally:
                survey.release()

    def _unaudited(self, survey: Survey) -> tuple[Unaudited, ...]:
        """Return what this capture leaves to be checked, and since when."""
        if not survey.unseen:
            return ()
        by_root = self._replica_state.baseline.by_root
        wholes = (by_root[root].roots for root in survey.unseen if root in by_root)
        before = {left.name: left for left in self._replica_state.owed}
        held = self._held_roots(survey)
        return tuple(
            Unaudited(
                root, before[root].cell if root in before else self._since(root), self.replica, root in held
            )
            for root in sorted(survey.unseen.union(*wholes))
        )

    def _since(self, root: str) -> int:
        """Return the cell after which what has just become unchecked was checked, 0 when it never was.

        What the log has under the name is an older value, even where it was never rebuilt here.
        """
        table, by_root = self._replica_state.table, self._replica_state.baseline.by_root
        return max(1, self._checked) if root in by_root or table.has_older(root) else 0

    def _held_roots(self, survey: Survey) -> set[str]:
        """Return the roots for which the store has no room, deleted ones of the same components included."""
        by_root = self._replica_state.baseline.by_root
        held = {root for root in survey.unseen if self.unstored.holds(root)}
        wholes = {root for kept in held if kept in by_root for root in by_root[kept].roots}
        return held | (wholes - survey.unseen)

    def lives_on(self) -> None:
        """Keep quiet the finalizers of all values: another process has the state, and this one ends."""
        self._replica_state.drop_quietly(list(self._replica_state.namespace.values()))

    # -- rebuild -----------------------------------------------------------------------------------------

    def receive(self, delta: Delta) -> None:
        """Take a foreign delta in; what it changes is pending until it is rebuilt."""
        held = self._replica_state
        with held.lock:
            if delta.mark <= held.mark:
                return
            held.table.apply(delta, own=False)
            self._verification.forget([*delta.dropped, *(record.cid for record in delta.components)])
            held.mark = delta.mark
            self._inherited, held.owed = (delta.unaudited, delta.execution_count), ()
            held.left.unchecked = tuple([one.name for one in delta.unaudited])
            self._checked = delta.execution_count

    def go_back(self, way: Delta) -> None:
        """Take in what leads to an earlier point; `went_back` follows once it is rebuilt."""
        with self._replica_state.at_work():
            self._process.revert(way)
        self.receive(way)

    def went_back(self, way: Delta) -> None:
        """Have the next capture say what a way back left of the process's state."""
        self._process.reverted(way)

    def rebuild(
        self,
        *,
        everything: bool,
        fetch: Callable[[Sequence[BlobRef]], None],
        wanted: AbstractSet[ComponentId] | None = None,
    ) -> RebuildReport:
        """Rebuild what was received: all of it, or only what is small, in hand, and needs no import.

        With `wanted`, these components, all classes and all process state are rebuilt as well, so that a
        cell which reaches no others can run: the names of those are left behind, bound to nothing.
        `fetch` is called at most once, with the blobs that the host's cache lacks. Components that cannot be
        rebuilt are reported; their names are bound to tombstones when `everything` is wanted.
        """
        return self._restoration.rebuild(everything=everything, fetch=fetch, wanted=wanted)
