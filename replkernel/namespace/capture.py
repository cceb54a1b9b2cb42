"""StateCapture: what changed in the user namespace since the last cell, and the way into another process.

Law: the fingerprint of everything decides what changed; a capture alters nothing and keeps nothing alive.
`capture` and `rebuild` run on the main thread, `receive` on any.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from replkernel.namespace import finalizers
from replkernel.namespace import rebuild as rebuilding
from replkernel.namespace.baseline import Baseline, name_components
from replkernel.namespace.component_table import PROCESS_PREFIX, ComponentTable
from replkernel.namespace.dump import Dump
from replkernel.namespace.process import ProcessPart
from replkernel.namespace.process_state import PartFamily, ProcessState
from replkernel.namespace.rebuild import Failure, Rebuilder, RebuildReport
from replkernel.namespace.shipping import Known as KnownChunks
from replkernel.namespace.shipping import Shipper, known_chunks, packages_present
from replkernel.namespace.state_rows import TableRow, rows_of
from replkernel.namespace.survey import Survey
from replkernel.namespace.tombstone import is_tombstone
from replkernel.namespace.world import World
from replkernel.objects.cache import BlobCache
from replkernel.records import BlobRef, ComponentId, ComponentRecord, Delta, Fence, ReplicaId, Seq

ORDER_MAX = 100_000
"""Names beyond this number keep no order."""

Shipped = dict[ComponentId, tuple[Dump, KnownChunks]]


class StateCapture:
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
        self._applied = Seq(0)
        self._unhealed: dict[ComponentId, tuple[str, ...]] = {}
        """Components whose names are tombstones until their bytes, or a package, are here."""

    # -- what others ask -----------------------------------------------------------------------------

    @property
    def applied(self) -> Seq:
        """Return the last execution whose delta was captured here or received."""
        return self._applied

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

    def table(self) -> list[TableRow]:
        """Return all components, largest first."""
        with self._lock:
            return rows_of(self._table, self._namespace)

    # -- capture ---------------------------------------------------------------------------------------

    def capture(self, seq: Seq, fence: Fence, execution_count: int) -> Delta:
        """Return what changed since the last capture or rebuild, and take it as the new baseline.

        `execution_count` is the number of the cell as its user saw it. Raises StoreError when large state
        cannot be written to the blob cache; the next capture then tries again.
        """
        self._world.seq, self._world.cell = seq, execution_count
        with _no_garbage_collection(), self._world.classes.untouched():
            survey = Survey(self._world, self._baseline.by_root)
            try:
                names = self._names()
                survey.look(self._surveyed(names) if self._table.pending else names)
                parts = self._process.changed()
                part_records = self._process.ship(parts, self._shipper, seq)
                records, shipped, dropped = self._compare(survey, seq)
                order = None if (now := tuple(names[:ORDER_MAX])) == self._order else now
                all_records = (*part_records, *records)
                delta = Delta(seq, fence, self._replica, execution_count, all_records, dropped, order=order)
                self._process.told(parts)
                self._commit(delta, shipped)
                return delta
            finally:
                survey.release()

    def _names(self) -> list[str]:
        """Return the user's names in the order of the namespace."""
        ignore = self._ignore
        return [name for name in self._namespace if name.__class__ is str and name not in ignore]

    def _surveyed(self, names: list[str]) -> list[str]:
        """Return `names` without those that pending components will bind, unless the user bound them anew."""
        with self._lock:
            waiting = {name for record in self._table.waiting() for name in record.names}
        unhealed = {name for names in self._unhealed.values() for name in names}
        namespace = self._namespace
        return [
            name
            for name in names
            if name not in waiting or (name in unhealed and not is_tombstone(namespace[name]))
        ]

    def _abandoned(self) -> list[ComponentId]:
        """Return the components never rebuilt here whose names the user has deleted or bound anew."""
        namespace = self._namespace
        return [
            cid
            for cid, names in self._unhealed.items()
            if not any(name in namespace and is_tombstone(namespace[name]) for name in names)
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
            else:
                changed.append(unit)
        cids = name_components(changed, baseline.cids, kept, self._table.records)
        shipped: Shipped = {}
        records = []
        for cid, unit in zip(cids, changed, strict=True):
            record, chunks = self._shipper.ship(cid, unit, seq, baseline.chunks.get(cid) or KnownChunks())
            records.append(record)
            shipped[cid] = (unit, chunks)
        gone = [cid for cid in baseline.chunks if cid not in kept and cid not in shipped]
        return records, shipped, (*gone, *self._abandoned())

    def _commit(self, delta: Delta, shipped: Shipped) -> None:
        """Take what a delta says as the new baseline."""
        baseline = self._baseline
        baseline.forget_components([*delta.dropped, *(cid for cid in shipped if cid in baseline.chunks)])
        for cid, (unit, chunks) in shipped.items():
            value = self._namespace.get(unit.roots[0]) if unit.roots else None
            baseline.set(cid, unit, value, chunks)
        if delta.order is not None:
            self._order = delta.order
        for cid in delta.dropped:
            self._unhealed.pop(cid, None)
        with self._lock:
            self._table.apply(delta, own=True)
            self._table.unbound.clear()
            self._applied = Seq(max(self._applied, delta.seq))

    # -- rebuild -----------------------------------------------------------------------------------------

    def receive(self, delta: Delta) -> None:
        """Take a foreign delta in; what it changes is pending until it is rebuilt."""
        with self._lock:
            if delta.seq <= self._applied:
                return
            self._table.apply(delta, own=False)
            self._applied = delta.seq

    def rebuild(self, *, everything: bool, fetch: Callable[[Sequence[BlobRef]], None]) -> RebuildReport:
        """Rebuild what was received: all of it, or only what is small, in hand, and needs no import.

        `fetch` is called at most once, with the blobs that the host's cache lacks. Components that cannot be
        rebuilt are reported; their names are bound to tombstones when `everything` is wanted.
        """
        clock = rebuilding.Clock()
        with self._lock:
            waiting = self._table.waiting()
        absent = rebuilding.fetch_missing(waiting, self._cache, fetch) if everything else {}
        with _no_garbage_collection(), self._world.classes.untouched():
            parts = [record for record in waiting if record.cid.startswith(PROCESS_PREFIX)]
            records = [record for record in waiting if not record.cid.startswith(PROCESS_PREFIX)]
            loaded, troubles = self._process.load(parts, self._read, everything=everything)
            for record in loaded:
                self._settled(record)
            done, failed = self._rebuild_components(records, absent, everything=everything)
            names = self._settle_names(everything=everything)
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
            if current is not None and current.seq == record.seq:
                self._table.settle(record.cid)

    def _rebuild_components(
        self, records: Sequence[ComponentRecord], absent: dict[ComponentId, str], *, everything: bool
    ) -> tuple[list[ComponentRecord], list[Failure]]:
        not_now: set[ComponentId] = set()
        if not everything:
            not_now = {r.cid for r in records if not (rebuilding.in_hand(r) and packages_present(r))}
        rebuilder = Rebuilder(self._world, self._cache, records, self._bind)
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
        self._take_baseline([*done, *lost])
        for record in (*done, *lost):
            self._unhealed.pop(record.cid, None)
            self._settled(record)
        return done, failed

    def _bind(self, record: ComponentRecord, values: dict[str, Any]) -> None:
        """Bind all names of a rebuilt component, and let go of what they held."""
        names = self._table.owned_names(record)
        self._drop_quietly([self._namespace.get(name) for name in names])
        rebuilding.bind(self._namespace, names, values)

    def _drop_quietly(self, values: list[Any]) -> None:
        finalizers.silence(values, self._world.classes.living())

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
        if everything and order is not None:
            rebuilding.put_in_order(self._namespace, order)
            self._order = order
        return gone

    def _take_baseline(self, records: Sequence[ComponentRecord]) -> None:
        """Fingerprint rebuilt components here: another process's fingerprints say nothing in this one."""
        survey = Survey(self._world, {})
        try:
            for record in records:
                names = self._table.owned_names(record)
                dump = survey.again(names)
                if dump is None:
                    continue
                self._baseline.forget_components([record.cid])
                self._baseline.forget_roots(names)
                value = self._namespace.get(dump.roots[0]) if dump.roots else None
                self._baseline.set(record.cid, dump, value, known_chunks(record, dump))
        finally:
            survey.release()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep a collection from running user finalizers at a moment at which none would have run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
