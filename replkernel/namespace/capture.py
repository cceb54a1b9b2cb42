"""StateCapture: what changed in the user namespace since the last cell, and the way back into another process.

Law: the fingerprint of everything decides what changed; a capture alters nothing and keeps no user object alive.
`capture` and `rebuild` run on the main thread, `receive` on any.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import msgspec

from replkernel.namespace import finalizers, rebuild as rebuilding
from replkernel.namespace.baseline import Baseline, name_components
from replkernel.namespace.class_registry import ROOT_PREFIX
from replkernel.namespace.component_table import PROCESS_PREFIX, ComponentTable
from replkernel.namespace.paths import type_name
from replkernel.namespace.pickling import Dump
from replkernel.namespace.process import ProcessPart
from replkernel.namespace.rebuild import Failure, Rebuilder, RebuildReport
from replkernel.namespace.shipping import Known as KnownChunks
from replkernel.namespace.shipping import Shipper, known_chunks, packages_present
from replkernel.namespace.survey import Survey
from replkernel.namespace.world import World
from replkernel.objects.cache import BlobCache
from replkernel.records import BlobRef, ComponentId, ComponentRecord, Delta, Fence, ReplicaId, Seq

ORDER_LIMIT = 1_000_000
"""Names beyond this number keep no order."""


@runtime_checkable
class PartFamily(Protocol):
    """Process parts whose number grows: all have ids with one prefix; `block` makes one that is not there yet."""

    prefix: str

    @property
    def blocks(self) -> Sequence[ProcessPart]:
        """Return the parts there are."""
        ...

    def block(self, cid: str) -> ProcessPart:
        """Return the part of that id."""
        ...


class TableRow(msgspec.Struct, frozen=True):
    """One component for `%replkernel state`; `kind` is the type of its value, or what it is made of."""

    cid: ComponentId
    names: tuple[str, ...]
    kind: str
    state_bytes: int
    seq: Seq
    pending: bool
    pins: tuple[str, ...]


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
        self._parts = parts
        self._world = World(namespace, replica)
        self._shipper = Shipper(cache, inline_bytes_max)
        self._table = ComponentTable()
        self._baseline = Baseline()
        self._part_data: dict[ComponentId, bytes] = {}
        self._order: tuple[str, ...] = ()
        self._lock = threading.RLock()
        self._applied = Seq(0)
        self._failures: dict[ComponentId, Failure] = {}

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
            rows = [self._row(record) for record in self._table.records.values()]
        return sorted(rows, key=lambda row: (-row.state_bytes, row.cid))

    def _row(self, record: ComponentRecord) -> TableRow:
        names = tuple(name for name in record.names if not name.startswith(ROOT_PREFIX))
        classes = [name.removeprefix(ROOT_PREFIX).partition("@")[0] for name in record.names if name not in names]
        if record.cid.startswith(PROCESS_PREFIX):
            kind = "process state"
        elif len(names) == 1 and names[0] in self._namespace:
            kind = type_name(self._namespace[names[0]])
        else:
            kind = "class " + ", ".join(classes) if classes and not names else "component"
        pins = tuple(pin.path or pin.name for pin in record.pins)
        pending = record.cid in self._table.pending
        return TableRow(record.cid, names, kind, record.state_bytes, record.seq, pending, pins)

    # -- capture ---------------------------------------------------------------------------------------

    def capture(self, seq: Seq, fence: Fence, execution_count: int) -> Delta:
        """Return what changed since the last capture or rebuild, and take it as the new baseline.

        `execution_count` is the number of the cell as its user saw it. Raises StoreError when large state
        cannot be written to the blob cache; the next capture then tries again.
        """
        self._world.seq, self._world.cell = seq, execution_count
        with _no_garbage_collection():
            survey = Survey(self._world, self._baseline.by_root)
            try:
                names = self._names()
                survey.look(names)
                delta, chunks = self._compare(survey, seq, fence, execution_count, names)
                self._commit(survey, delta, chunks)
                return delta
            finally:
                survey.release()

    def _names(self) -> list[str]:
        """Return the user's names, without those that a component not rebuilt yet will bind."""
        ignore = self._ignore
        names = [name for name in self._namespace if name.__class__ is str and name not in ignore]
        if self._table.pending:
            with self._lock:
                waiting = {name for record in self._table.waiting() for name in record.names}
            names = [name for name in names if name not in waiting]
        return names

    def _compare(
        self, survey: Survey, seq: Seq, fence: Fence, execution_count: int, names: list[str]
    ) -> tuple[Delta, dict[ComponentId, tuple[Dump, KnownChunks]]]:
        baseline = self._baseline
        changed: list[Dump] = []
        kept = {baseline.cids[root] for root in survey.untouched}
        for unit in survey.units:
            if baseline.unchanged(unit):
                kept.add(baseline.cids[(unit.roots or _class_roots(unit))[0]])
            else:
                changed.append(unit)
        cids = name_components(changed, baseline.cids, kept, self._table.records)
        shipped: dict[ComponentId, tuple[Dump, KnownChunks]] = {}
        records = self._changed_parts(seq)
        for cid, unit in zip(cids, changed, strict=True):
            record, chunks = self._shipper.ship(cid, unit, seq, baseline.chunks.get(cid) or KnownChunks())
            records.append(record)
            shipped[cid] = (unit, chunks)
        dropped = tuple(cid for cid in baseline.chunks if cid not in kept and cid not in shipped)
        order = tuple(names[:ORDER_LIMIT])
        told = None if order == self._order else order
        delta = Delta(seq, fence, self._replica, execution_count, tuple(records), dropped, (), told)
        return delta, shipped

    def _commit(self, survey: Survey, delta: Delta, shipped: dict[ComponentId, tuple[Dump, KnownChunks]]) -> None:
        baseline = self._baseline
        baseline.forget_components([*delta.dropped, *(cid for cid in shipped if cid in baseline.chunks)])
        for cid, (unit, chunks) in shipped.items():
            value = self._namespace.get(unit.roots[0]) if unit.roots else None
            baseline.set(cid, unit, value, chunks)
        for record in delta.components:
            if record.cid.startswith(PROCESS_PREFIX):
                self._part_data[record.cid] = self._new_part_data.pop(record.cid)
        if delta.order is not None:
            self._order = delta.order
        with self._lock:
            self._table.apply(delta, own=True)
            self._table.unbound.clear()
            self._applied = Seq(max(self._applied, delta.seq))

    def _changed_parts(self, seq: Seq) -> list[ComponentRecord]:
        records = []
        self._new_part_data: dict[ComponentId, bytes] = {}
        for part in self._all_parts():
            data = part.dump()
            before = self._part_data.get(part.cid)
            if data is None or data is before or data == before:
                continue
            self._new_part_data[part.cid] = data
            records.append(self._shipper.ship_part(part.cid, data, seq))
        return records

    def _all_parts(self) -> Iterator[ProcessPart]:
        for part in self._parts:
            if isinstance(part, PartFamily):
                yield from part.blocks
            else:
                yield part

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
        with _no_garbage_collection():
            parts = [record for record in waiting if record.cid.startswith(PROCESS_PREFIX)]
            records = [record for record in waiting if not record.cid.startswith(PROCESS_PREFIX)]
            rebuilt = self._load_parts(parts, absent, everything=everything)
            done, failed = self._rebuild_components(records, absent, everything=everything)
            names = self._settle_names(everything=everything)
        with self._lock:
            pending = len(self._table.pending)
        return RebuildReport((*rebuilt, *done), tuple(failed), pending, tuple(names), clock.seconds())

    def _load_parts(
        self, records: Sequence[ComponentRecord], absent: dict[ComponentId, str], *, everything: bool
    ) -> list[ComponentId]:
        rank = {part.cid: index for index, part in enumerate(self._all_parts())}
        loaded = []
        for record in sorted(records, key=lambda record: rank.get(record.cid, len(rank))):
            cid = record.cid
            part = self._part(cid)
            if part is None or cid in absent or not (everything or rebuilding.in_hand(record)):
                if part is None or everything:
                    self._settled(record)
                continue
            payload = record.payload
            data = payload.head
            if data is None and payload.head_blob is not None:
                data = bytes(self._cache.read_blob(payload.head_blob))
            part.load(data or b"")
            self._part_data[cid] = part.dump() or b""
            self._settled(record)
            loaded.append(cid)
        return loaded

    def _part(self, cid: ComponentId) -> ProcessPart | None:
        for part in self._parts:
            if isinstance(part, PartFamily):
                if cid.startswith(part.prefix):
                    return part.block(cid)
            elif part.cid == cid:
                return part
        return None

    def _settled(self, record: ComponentRecord) -> None:
        """Note that a record was dealt with, unless a newer one of the same id came in meanwhile."""
        with self._lock:
            current = self._table.records.get(record.cid)
            if current is not None and current.seq == record.seq:
                self._table.settle(record.cid)

    def _rebuild_components(
        self, records: Sequence[ComponentRecord], absent: dict[ComponentId, str], *, everything: bool
    ) -> tuple[list[ComponentId], list[Failure]]:
        rebuilder = Rebuilder(self._world, self._cache, records)
        rebuilder.failures.update(absent)
        not_now: set[ComponentId] = set()
        if not everything:
            not_now = {r.cid for r in records if not (rebuilding.in_hand(r) and packages_present(r))}
        rebuilder.rebuild(not_now)
        done: list[ComponentRecord] = []
        failed: list[Failure] = []
        replaced: list[Any] = []
        for record in records:
            names = self._table.owned_names(record)
            values = rebuilder.values.get(record.cid)
            if values is None:
                if not everything or record.cid not in rebuilder.failures:
                    continue
                reason = rebuilder.failures[record.cid]
                failed.append(Failure(record.cid, tuple(names), reason))
                values = rebuilding.graves(record, names, self._table.origins.get(record.cid, self._replica), reason)
            replaced.extend(self._namespace.get(name) for name in names)
            rebuilding.bind(self._namespace, names, values)
            done.append(record)
        self._drop_quietly(replaced)
        del replaced
        rebuilder.values.clear()
        self._take_baseline(done)
        for record in done:
            self._settled(record)
        return [record.cid for record in done], failed

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


def _class_roots(dump: Dump) -> tuple[str, ...]:
    return tuple(ROOT_PREFIX + class_id for class_id in dump.own_classes)


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
