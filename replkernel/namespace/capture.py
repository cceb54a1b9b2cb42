"""StateCapture: what changed in the user namespace since the last cell, and the way into another process.

Law: the fingerprint of everything decides what changed; a capture alters nothing and keeps nothing alive.
`capture` and `rebuild` run on the main thread, `receive` on any.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

from replkernel.namespace import finalizers
from replkernel.namespace import rebuild as rebuilding
from replkernel.namespace.agenda import HEAVY_S
from replkernel.namespace.baseline import Baseline, name_components
from replkernel.namespace.component_table import PROCESS_PREFIX, ComponentTable
from replkernel.namespace.dump import Dump
from replkernel.namespace.faith import Unfaithful
from replkernel.namespace.giving_way import EVERYTHING, GiveWay, Terms
from replkernel.namespace.leaving import Leaving
from replkernel.namespace.left_behind import LeftBehind, ReadAhead
from replkernel.namespace.patches.book import book, is_place
from replkernel.namespace.process import ProcessPart
from replkernel.namespace.process_parts.seldom_readers import collecting
from replkernel.namespace.process_state import PartFamily, ProcessState
from replkernel.namespace.prover import Prover
from replkernel.namespace.rebuild import Failure, Rebuilder, RebuildReport
from replkernel.namespace.shipping import Known as KnownChunks
from replkernel.namespace.shipping import Shipper, packages_present
from replkernel.namespace.state_rows import TableRow, rows_of
from replkernel.namespace.survey import Survey
from replkernel.namespace.tombstone import is_tombstone
from replkernel.namespace.world import World
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
)

ORDER_MAX = 100_000
"""Names beyond this number keep no order."""

SHIPPED_AT_ONCE_BYTES = 1 << 20
"""A changed component of at most so many bytes is shipped even when somebody waits."""

Shipped = dict[ComponentId, tuple[Dump, KnownChunks]]

OF_COMPILERS = ("__compiled_fn_", "__resume_at_", "__builtins_dict__", "__import_", "__nested_resume_fns")
"""Names that `torch.compile` puts among the user's; each process makes its own when it compiles."""


class StateCapture(Leaving):
    """The state of one kernel process, as its replicas share it.

    `namespace` is the user namespace; `ignore` are names that are IPython's own; `parts` is the process's
    state beside the namespace, in the order in which it is to be loaded.
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
    ) -> None:
        self._namespace = namespace
        self._cache = cache
        self._replica = replica
        self._ignore = ignore
        self._process = ProcessState(parts)
        self._world = World(namespace, replica)
        self._shipper = Shipper(cache, inline_bytes_max)
        self._table = ComponentTable()
        self._baseline = Baseline()
        self._order: tuple[str, ...] = ()
        self._lock = threading.RLock()
        self._working = threading.RLock()
        """Held while the namespace is captured or rebuilt: a subshell may have to rebuild as well."""
        self._mark = Mark(Seq(0))
        self._owed: tuple[Unaudited, ...] = ()
        """What was not checked after the last capture here."""
        self._checked = 0
        """The cell after which the rest was."""
        self._unfinished: set[str] = set()
        self._inherited: tuple[tuple[Unaudited, ...], int] = ((), 0)
        """What a received delta says was not checked, and after which cell."""
        self._prover = Prover(self._world, cache, self._table, self._baseline, self._lock)
        self._suspicious = False
        """Whether something was not as it came while other components were still missing."""
        self._left = LeftBehind(namespace)
        self._touched: set[str] = set()
        """What the cells reached after which something is still to be checked."""
        self._asked: set[str] = set()
        """What the next cells reach."""
        self._ahead = ReadAhead(cache)
        self._unhealed: dict[ComponentId, tuple[str, ...]] = {}
        """Components whose names are tombstones until their bytes, or a package, are here."""

    # -- what others ask -----------------------------------------------------------------------------

    @property
    def applied(self) -> Seq:
        """Return the last execution whose delta was captured here or received."""
        return self._mark.seq

    @property
    def mark(self) -> Mark:
        """Return the last execution, and which of its audits, that was captured here or received."""
        return self._mark

    @property
    def has_heavy(self) -> bool:
        """Tell whether a component takes so long to look at that it matters what a cell mentions."""
        return bool(self._unfinished or self._baseline.heavy)

    @property
    def inherited(self) -> tuple[tuple[Unaudited, ...], int]:
        """Return what the last delta received leaves unchecked, and the cell after which that was so."""
        return self._inherited

    @property
    def replica(self) -> ReplicaId:
        """Return the replica whose process this is."""
        return self._replica

    @property
    def state_bytes(self) -> int:
        """Return the bytes of everything captured or received."""
        with self._lock:
            return self._table.state_bytes

    @property
    def components(self) -> int:
        """Return the number of components."""
        with self._lock:
            return len(self._table.records)

    @property
    def pending_bytes(self) -> int:
        """Return the bytes received and not rebuilt."""
        with self._lock:
            return self._table.pending_bytes

    @property
    def unfaithful(self) -> tuple[Unfaithful, ...]:
        """Return the components that were rebuilt here otherwise than captured."""
        with self._lock:
            return self._prover.faith.unfaithful

    @property
    def unproven(self) -> int:
        """Return how many components were rebuilt here without a proof."""
        with self._lock:
            return self._prover.faith.unproven

    def table(self) -> list[TableRow]:
        """Return all components, largest first."""
        with self._lock:
            owed = {left.name: left.cell for left in self._owed}
            return rows_of(self._table, self._namespace, self._baseline.by_root, owed)

    # -- capture ---------------------------------------------------------------------------------------

    def capture(self, seq: Seq, fence: Fence, execution_count: int, terms: Terms = EVERYTHING) -> Delta:
        """Return what changed since the last capture or rebuild, and take it as the new baseline.

        `execution_count` is the number of the cell as its user saw it. What the terms leave no time for is
        in the delta's `unaudited`. Raises StoreError when large state cannot be written to the blob cache;
        the next capture then tries again.
        """
        self._world.seq, self._world.cell = seq, execution_count
        with self._working, _no_garbage_collection(), self._world.classes.untouched():
            survey = Survey(self._world, self._baseline.by_root, terms)
            try:
                names = self._names()
                looked_at = self._surveyed(names) if self._table.pending else names
                survey.look(looked_at, self._unfinished, self._patches())
                parts = self._process.changed()
                part_records = self._process.ship(parts, self._shipper, seq)
                records, shipped, dropped = self._compare(survey, seq)
                unaudited = self._unaudited(survey)
                now = self._left.order(names, self._table.order or self._order)[:ORDER_MAX]
                order = None if now == self._order and not self._owed else now
                all_records = (*part_records, *records)
                delta = Delta(
                    seq,
                    fence,
                    self._replica,
                    execution_count,
                    all_records,
                    dropped,
                    order=order,
                    audit=terms.audit,
                    unaudited=unaudited,
                )
                self._process.told(parts)
                self._commit(delta, shipped)
                self._owed, self._checked = unaudited, execution_count
                self._note_touched()
                self._unfinished = (self._unfinished | survey.unfinished) & survey.unseen
                return delta
            finally:
                survey.release()

    def _unaudited(self, survey: Survey) -> tuple[Unaudited, ...]:
        """Return what this capture leaves to be checked, and since when."""
        if not survey.unseen:
            return ()
        by_root = self._baseline.by_root
        wholes = (by_root[root].roots for root in survey.unseen if root in by_root)
        before = {left.name: left for left in self._owed}
        return tuple(
            before.get(root) or Unaudited(root, self._checked if root in by_root else 0, self._replica)
            for root in sorted(survey.unseen.union(*wholes))
        )

    def _names(self) -> list[str]:
        """Return the user's names in the order of the namespace."""
        ignore = self._ignore
        return [
            name
            for name in self._namespace
            if name.__class__ is str
            and name not in ignore
            and not (name[:2] == "__" and name.startswith(OF_COMPILERS))
        ]

    def _patches(self) -> dict[str, Any]:
        """Return what the notebook changed in libraries, without what pending components will put there."""
        patches = book.values()
        if patches and self._table.pending:
            with self._lock:
                waiting = {name for record in self._table.waiting() for name in record.names}
            patches = {root: value for root, value in patches.items() if root not in waiting}
        return patches

    def _surveyed(self, names: list[str]) -> list[str]:
        """Return `names` without those that pending components will bind, unless the user bound them anew."""
        with self._lock:
            waiting = {name for record in self._table.waiting() for name in record.names}
        unhealed = {name for names in self._unhealed.values() for name in names}
        namespace = self._namespace
        return [
            name
            for name in names
            if name not in waiting
            or name in self._left.names
            or (name in unhealed and not is_tombstone(namespace[name]))
        ]

    def _abandoned(self) -> list[ComponentId]:
        """Return the components never rebuilt here whose names the user has deleted or bound anew."""
        namespace = self._namespace
        return [
            cid
            for cid, names in self._unhealed.items()
            if not any(
                is_place(name) or (name in namespace and is_tombstone(namespace[name])) for name in names
            )
        ]

    def _compare(
        self, survey: Survey, seq: Seq
    ) -> tuple[list[ComponentRecord], Shipped, tuple[ComponentId, ...]]:
        """Return the records of changed components, what was shipped, and the components that are gone."""
        baseline = self._baseline
        changed: list[Dump] = []
        kept = {baseline.cids[root] for root in survey.untouched}
        for unit in survey.units:
            cid = baseline.unchanged(unit)
            if cid is not None:
                kept.add(cid)
                if baseline.heavy or unit.seconds >= HEAVY_S:
                    baseline.seen(unit, self._namespace)
            else:
                changed.append(unit)
        cids = name_components(changed, baseline.cids, kept, self._table.records)
        shipped, records = self._ship(survey, dict(zip(map(id, changed), cids, strict=True)), seq)
        kept |= {baseline.cids[root] for root in survey.unseen if root in baseline.cids}
        if self._table.pending:
            kept |= self._needed_classes()
        gone = [cid for cid in baseline.chunks if cid not in kept and cid not in shipped]
        return records, shipped, (*gone, *self._abandoned())

    def _ship(
        self, survey: Survey, cids: dict[int, ComponentId], seq: Seq
    ) -> tuple[Shipped, list[ComponentRecord]]:
        """Write the units of `cids`, the small ones first; what there is no time for is taken back."""
        chunks = self._baseline.chunks
        told: dict[int, tuple[ComponentRecord, KnownChunks]] = {}
        changed = [unit for unit in survey.units if id(unit) in cids]
        survey.gate.guard()
        for unit in sorted(changed, key=Dump.size):
            cid = cids[id(unit)]
            check = survey.gate.check if unit.size() > SHIPPED_AT_ONCE_BYTES else lambda: None
            try:
                check()
                told[id(unit)] = self._shipper.ship(cid, unit, seq, chunks.get(cid) or KnownChunks(), check)
            except GiveWay:
                survey.gate.open()
                survey.take_back([other for other in changed if id(other) not in told])
                break
        units = [unit for unit in survey.units if id(unit) in told]
        shipped = {cids[id(unit)]: (unit, told[id(unit)][1]) for unit in units}
        return shipped, [told[id(unit)][0] for unit in units]

    def _commit(self, delta: Delta, shipped: Shipped) -> None:
        """Take what a delta says as the new baseline."""
        baseline = self._baseline
        baseline.forget_components([*delta.dropped, *(cid for cid in shipped if cid in baseline.chunks)])
        for cid, (unit, chunks) in shipped.items():
            baseline.set(cid, unit, self._namespace, chunks)
        if delta.order is not None:
            self._order = delta.order
        for cid in delta.dropped:
            self._unhealed.pop(cid, None)
        with self._lock:
            self._table.apply(delta, own=True)
            self._prover.faith.forget([*delta.dropped, *shipped])
            self._table.unbound.clear()
            self._left.keep(self.waiting_names())
            self._mark = max(self._mark, delta.mark)

    # -- rebuild -----------------------------------------------------------------------------------------

    def receive(self, delta: Delta) -> None:
        """Take a foreign delta in; what it changes is pending until it is rebuilt."""
        with self._lock:
            if delta.mark <= self._mark:
                return
            self._table.apply(delta, own=False)
            self._prover.faith.forget([*delta.dropped, *(record.cid for record in delta.components)])
            self._mark = delta.mark
            self._inherited, self._owed = (delta.unaudited, delta.execution_count), ()
            self._checked = delta.execution_count

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
        clock = rebuilding.Clock()
        self._suspicious = False
        with self._lock:
            waiting = self._table.waiting()
        chosen = self._chosen(waiting, wanted, everything=everything)
        absent = rebuilding.fetch_missing(chosen, self._cache, fetch) if chosen else {}
        with self._working, _no_garbage_collection(), self._world.classes.untouched():
            waiting = self._still_waiting(waiting)
            parts = [record for record in waiting if record.cid.startswith(PROCESS_PREFIX)]
            records = [record for record in waiting if not record.cid.startswith(PROCESS_PREFIX)]
            partly = wanted is not None
            loaded, troubles = self._process.load(parts, self._read, everything=everything or partly)
            for record in loaded:
                self._settled(record)
            now = {record.cid for record in chosen}
            self._restore_places()
            done, failed = self._rebuild_components(records, absent, now, everything=everything)
            whole = everything or (partly and not self._table.pending)
            mainly = threading.current_thread() is threading.main_thread()
            names = self._settle_names(everything=whole and mainly)
            if partly:
                self._leave_rest()
            self._hold_classes()
        if partly and self._suspicious:
            return self.rebuild(everything=True, fetch=fetch)
        with self._lock:
            pending = len(self._table.pending)
        rebuilt = tuple(record.cid for record in (*loaded, *done))
        return RebuildReport(rebuilt, (*troubles, *failed), pending, tuple(names), clock.seconds())

    def _read(self, record: ComponentRecord) -> bytes:
        """Return the bytes of a process part."""
        payload = record.payload
        if payload.head_blob is not None:
            return bytes(self._cache.read_blob(payload.head_blob))
        return payload.head or b""

    def _settled(self, record: ComponentRecord) -> None:
        """Note that a record was dealt with, unless a newer one of the same id came in meanwhile."""
        with self._lock:
            current = self._table.records.get(record.cid)
            if current is not None and (current.seq, current.digest) == (record.seq, record.digest):
                self._table.settle(record.cid)

    def _rebuild_components(
        self,
        records: Sequence[ComponentRecord],
        absent: dict[ComponentId, str],
        now: AbstractSet[ComponentId],
        *,
        everything: bool,
    ) -> tuple[list[ComponentRecord], list[Failure]]:
        later = [record for record in records if record.cid not in now]
        not_now = {r.cid for r in later if not (rebuilding.in_hand(r) and packages_present(r))}
        rebuilder = Rebuilder(self._world, self._ahead, records, self._bind)
        rebuilder.rebuild(not_now, absent)
        failed: list[Failure] = []
        done, lost = rebuilder.done, []
        for record in records if everything else ():
            reason = rebuilder.failures.get(record.cid)
            if reason is None:
                continue
            names = self._table.owned_names(record)
            failed.append(Failure(record.cid, tuple(names), reason))
            origin = self._table.origins.get(record.cid, self._replica)
            self._bind(record, rebuilding.graves(record, names, origin, reason))
            self._baseline.forget_components([record.cid])
            if record.cid in rebuilder.curable:
                self._unhealed[record.cid] = tuple(names)
            else:
                lost.append(record)
        wrong = self._prover.prove(rebuilder, lost)
        if everything or len(done) == len(records):
            for record, verdict in wrong:
                origin = self._table.origins.get(record.cid, self._replica)
                failed.append(self._prover.condemn(record, verdict, origin))
        elif wrong:
            # What it needs may be among what is still to be rebuilt: it waits with that.
            self._suspicious = True
            self._prover.take_back([record for record, _ in wrong])
            done = [record for record in done if all(record is not other for other, _ in wrong)]
        for record in (*done, *lost):
            self._unhealed.pop(record.cid, None)
            self._settled(record)
        return done, failed

    def _bind(self, record: ComponentRecord, values: dict[str, Any]) -> None:
        """Bind all names of a rebuilt component, and let go of what they held; the user's bindings win."""
        with self._lock:
            for name in self._left.bound_anew(self._table.owned_names(record)):
                self._table.give_up(name)
            names = self._table.owned_names(record)
        self._drop_quietly([self._namespace.get(name) for name in names])
        rebuilding.bind(self._namespace, names, values)
        self._left.forget(names)

    def _drop_quietly(self, values: list[Any]) -> None:
        finalizers.silence(values, self._world.classes.living())

    def _restore_places(self) -> None:
        """Give libraries back what another replica gave back, before anything is rebuilt that names it."""
        with self._lock:
            gone = [name for name in self._table.unbound if name not in self._table.owners and is_place(name)]
        for name in gone:
            book.restore(name)

    def _settle_names(self, *, everything: bool) -> list[str]:
        """Unbind what was dropped elsewhere, and put the names in their order."""
        with self._lock:
            gone = [name for name in self._table.take_unbound() if name in self._namespace]
            order, self._table.order = self._table.order, None if everything else self._table.order
            live = set(self._table.records)
        self._drop_quietly([self._namespace[name] for name in gone])
        for name in gone:
            del self._namespace[name]
        self._baseline.forget_components([cid for cid in self._baseline.chunks if cid not in live])
        if everything:
            order = self._left.settle(order, self._order)
        if everything and order is not None:
            rebuilding.put_in_order(self._namespace, order)
            self._order = order
        return gone


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
