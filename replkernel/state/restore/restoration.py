"""How what was received gets into the namespace: what must not wait, what failed, what is not as it came.

Owns the order of a rebuild and the bindings; one component's way is `rebuild`'s, its proof the prover's.
Law: what cannot be rebuilt becomes a tombstone when everything is wanted, and the user's bindings win.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from replkernel.objects.cache import BlobCache
from replkernel.records import BlobRef, ComponentId, ComponentRecord
from replkernel.state.capture.shipping import packages_present
from replkernel.state.component_table import PROCESS_PREFIX, Devices
from replkernel.state.patches.book import book, is_place
from replkernel.state.patches.imported_sources import at_hand
from replkernel.state.process.travelling import ProcessState
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.replica_state import ReplicaState
from replkernel.state.restore import rebuild as rebuilding
from replkernel.state.restore.incoming import ReadAhead
from replkernel.state.restore.leaving import Leaving, has_only_variables
from replkernel.state.restore.rebuild import Failure, Rebuilder, RebuildReport
from replkernel.state.verify.proof import Proof, Verdict
from replkernel.state.verify.prover import Prover, Wrong

_ENTRIES = type.__dict__["__dict__"]


class Restoration:
    """Restores what one process received; `ahead` stands before `cache`."""

    def __init__(
        self,
        replica_state: ReplicaState,
        leaving: Leaving,
        process: ProcessState,
        prover: Prover,
        cache: BlobCache,
        ahead: ReadAhead,
        devices: Devices,
    ) -> None:
        self._replica_state = replica_state
        self._leaving = leaving
        self._process = process
        self._prover = prover
        self._cache = cache
        self._ahead = ahead
        self._devices = devices
        self._table = replica_state.table
        self._lock = replica_state.lock
        self._suspicious = False
        """Whether something was not as it came while other components were still missing."""

    def rebuild(
        self,
        *,
        everything: bool,
        fetch: Callable[[Sequence[BlobRef]], None],
        wanted: AbstractSet[ComponentId] | None,
    ) -> RebuildReport:
        """Rebuild as `StateCapture.rebuild` says."""
        self._suspicious = False
        with self._lock:
            waiting = self._table.waiting()
        allowed = [record for record in waiting if self._devices.may_have(record)]
        withheld = {record.cid for record in waiting}.difference(record.cid for record in allowed)
        if everything and withheld:
            everything, wanted = False, frozenset(record.cid for record in allowed)
        chosen = _chosen(allowed, wanted, everything=everything)
        absent = rebuilding.fetch_missing(chosen, self._cache, fetch) if chosen else {}
        with self._replica_state.at_work(), at_hand():
            waiting = self._still_waiting(waiting)
            parts = [record for record in waiting if record.cid.startswith(PROCESS_PREFIX)]
            records = [record for record in waiting if not record.cid.startswith(PROCESS_PREFIX)]
            partly = wanted is not None
            loaded, troubles = self._process.load(parts, self._read, everything=everything or partly)
            for record in loaded:
                self._settled(record)
            now = {record.cid for record in chosen}
            self._restore_places()
            self._leaving.hold_classes()
            done, failed = self._rebuild_components(records, absent, now, withheld, everything=everything)
            whole = everything or (partly and not self._table.pending)
            mainly = threading.current_thread() is threading.main_thread()
            self._settle_names(everything=whole and mainly)
            if partly:
                self._leaving.leave_rest()
            self._leaving.hold_classes()
            with self._lock:
                none_left = not self._table.pending
            self._replica_state.drop_watched(whole=none_left)
        if partly and self._suspicious and not withheld:
            return self.rebuild(everything=True, fetch=fetch, wanted=None)
        with self._lock:
            pending = len(self._table.pending)
        rebuilt = tuple(record.cid for record in (*loaded, *done))
        return RebuildReport(rebuilt, (*troubles, *failed), pending)

    def _still_waiting(self, records: Sequence[ComponentRecord]) -> list[ComponentRecord]:
        """Return those of `records` that nobody has rebuilt meanwhile, nor replaced by newer ones."""
        with self._lock:
            known = set(map(id, records))
            return [record for record in self._table.waiting() if id(record) in known]

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

    # -- components ----------------------------------------------------------------------------------

    def _rebuild_components(
        self,
        records: Sequence[ComponentRecord],
        absent: dict[ComponentId, str],
        now: AbstractSet[ComponentId],
        withheld: AbstractSet[ComponentId],
        *,
        everything: bool,
    ) -> tuple[list[ComponentRecord], list[Failure]]:
        """Rebuild what is to come `now` or is in hand; return what is done, and what failed for good."""
        later = [record for record in records if record.cid not in now]
        not_now = {r.cid for r in later if not (rebuilding.in_hand(r) and packages_present(r))}
        not_now |= withheld
        rebuilder = Rebuilder(self._replica_state.world, self._ahead, records, self._bind)
        rebuilder.rebuild(not_now, absent)
        failed, lost = self._bury(rebuilder, records) if everything else ([], [])
        done = rebuilder.done
        wrong = self._prover.prove(rebuilder, lost)
        for record in lost:
            # The replica that made it has it still, so the notebook stays there.
            refused = Verdict(Proof.UNFAITHFUL, cause=rebuilder.failures[record.cid])
            self._prover.condemn(record, refused, self._origin(record))
        if everything or len(done) == len(records):
            failed += [self._prover.condemn(record, why, self._origin(record)) for record, why in wrong]
        else:
            # What it needs may be among what is still to be rebuilt: it waits with that.
            self._suspicious |= bool(wrong)
            if not rebuilder.left_out:
                self._suspect(rebuilder, records, wrong)
            self._prover.take_back([record for record, _ in wrong])
            done = [record for record in done if all(record is not other for other, _ in wrong)]
        for record in (*done, *lost):
            self._replica_state.unhealed.pop(record.cid, None)
            self._settled(record)
        return done, failed

    def _suspect(self, rebuilder: Rebuilder, records: Sequence[ComponentRecord], wrong: Wrong) -> None:
        """Tell of what a user's own way to copy spoils, all at hand that it may need; it is tried again."""
        for record, verdict in wrong:
            self._prover.suspect(record, verdict, self._origin(record))
        for record in records:
            reason = rebuilder.failures.get(record.cid)
            if reason is not None:
                values, tombstones = rebuilder.in_part(record)
                refused = Verdict(Proof.UNFAITHFUL, cause=reason, lost=tombstones)
                self._prover.suspect(record, refused, self._origin(record), values)
                self._replica_state.drop_quietly(list(values.values()))

    def _bury(
        self, rebuilder: Rebuilder, records: Sequence[ComponentRecord]
    ) -> tuple[list[Failure], list[ComponentRecord]]:
        """Bind tombstones to what could not be rebuilt; return that, and what no later try can cure."""
        failed: list[Failure] = []
        lost: list[ComponentRecord] = []
        for record in records:
            reason = rebuilder.failures.get(record.cid)
            if reason is None:
                continue
            if record.cid not in rebuilder.curable and rebuilder.build_in_part(record):
                continue
            names = self._table.owned_names(record)
            failed.append(Failure(record.cid, tuple(names), reason))
            self._bind(record, rebuilding.tombstones(record, names, self._origin(record), reason))
            self._replica_state.baseline.forget_components([record.cid])
            if record.cid in rebuilder.curable:
                self._replica_state.unhealed[record.cid] = tuple(names)
            else:
                lost.append(record)
        return failed, lost

    def _origin(self, record: ComponentRecord) -> str:
        """Return the replica that made a component."""
        return self._table.origins.get(record.cid, self._replica_state.replica)

    # -- names ---------------------------------------------------------------------------------------

    def _bind(self, record: ComponentRecord, values: dict[str, Any]) -> None:
        """Bind all names of a rebuilt component, and let go of what they held; the user's bindings win."""
        replica_state = self._replica_state
        with self._lock:
            for name in replica_state.left.bound_anew(self._table.owned_names(record)):
                self._table.give_up(name)
            names = self._table.owned_names(record)
        replica_state.drop_quietly([replica_state.namespace.get(name) for name in names])
        rebuilding.bind(replica_state.namespace, names, values)
        replica_state.provenance.bound(names)
        replica_state.left.forget(names)

    def _restore_places(self) -> None:
        """Give libraries back what another replica gave back, before anything is rebuilt that names it."""
        with self._lock:
            gone = [name for name in self._table.unbound if name not in self._table.owners and is_place(name)]
        for name in gone:
            book.restore(name)

    def _settle_names(self, *, everything: bool) -> None:
        """Unbind what was dropped elsewhere, also in libraries, and put the names in their order."""
        replica_state, baseline = self._replica_state, self._replica_state.baseline
        with self._lock:
            unbound = self._table.take_unbound()
            order, self._table.order = self._table.order, None if everything else self._table.order
            live = set(self._table.records)
        for place in filter(is_place, unbound):
            book.restore(place)
        gone = [name for name in unbound if name in replica_state.namespace]
        values = [replica_state.namespace[name] for name in gone]
        replica_state.drop_quietly(values + self._held_by_classes(unbound))
        for name in gone:
            del replica_state.namespace[name]
        baseline.forget_components([cid for cid in baseline.chunks if cid not in live])
        if everything:
            order = replica_state.left.settle(order, replica_state.order)
        if everything and order is not None:
            rebuilding.put_in_order(replica_state.namespace, order)
            replica_state.order = order

    def _held_by_classes(self, roots: Iterable[str]) -> list[Any]:
        """Return what the classes among `roots` have: a class itself outlives its variables as a rule."""
        ids = [root.removeprefix(ROOT_PREFIX) for root in roots if root.startswith(ROOT_PREFIX)]
        found = map(self._replica_state.world.classes.find, ids)
        return [value for cls in found if cls is not None for value in _ENTRIES.__get__(cls).values()]


def _chosen(
    waiting: Sequence[ComponentRecord], wanted: AbstractSet[ComponentId] | None, *, everything: bool
) -> list[ComponentRecord]:
    """Return what a rebuild must not put off: classes and process state are small and may be needed."""
    if wanted is None and not everything:
        return []
    return [
        record
        for record in waiting
        if everything or record.cid in (wanted or ()) or not has_only_variables(record)
    ]
