"""Takes the baseline of what was rebuilt, proves it by the same dump, and deals with what is not as it came.

What differs is built once more, for the loading of another component may have changed it; what still
differs is unfaithful: tombstones take the place of what is not as it was. Law: the common case dumps each
component once, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from replkernel.objects.cache import BlobCache
from replkernel.records import ComponentId, ComponentRecord
from replkernel.state.capture.dump import Dump
from replkernel.state.capture.shipping import known_chunks
from replkernel.state.capture.survey import Survey
from replkernel.state.capture.whereabouts import Whereabouts
from replkernel.state.component_table import Verification
from replkernel.state.replica_state import ReplicaState
from replkernel.state.restore import rebuild as rebuilding
from replkernel.state.restore.rebuild import Failure, Rebuilder
from replkernel.state.tombstone import loss_of, shorten
from replkernel.state.verify.proof import Proof, Received, Verdict, judge
from replkernel.state.verify.tombstones import TombstoneMaker

Wrong = list[tuple[ComponentRecord, Verdict]]


class Prover:
    """Proves rebuilt components for one process; `verification` is what it found. Runs on the main thread."""

    def __init__(self, replica_state: ReplicaState, cache: BlobCache) -> None:
        self._cache = cache
        self._world = replica_state.world
        self._table = replica_state.table
        self._baseline = replica_state.baseline
        self._lock = replica_state.lock
        self._drop_quietly = replica_state.drop_quietly
        self.verification = Verification()

    def prove(self, rebuilder: Rebuilder, lost: Sequence[ComponentRecord]) -> Wrong:
        """Take the baseline of all that `rebuilder` did, and of what is `lost`; return what is unfaithful."""
        self.take_baseline(lost, {})
        wrong = self.take_baseline(rebuilder.done, rebuilder.came, rebuilder.absent)
        if not wrong:
            return []
        for record, _ in wrong:
            rebuilder.build_anew(record)
        return self.take_baseline(rebuilder.done, rebuilder.came, rebuilder.absent)

    def take_baseline(
        self,
        records: Sequence[ComponentRecord],
        came: Mapping[ComponentId, Received],
        absent: Mapping[ComponentId, tuple[Any, ...]] = MappingProxyType({}),
    ) -> Wrong:
        """Fingerprint rebuilt components here: another process's fingerprints say nothing in this one.

        The same dump proves what `came`; what is not as it came is returned, as is what has tombstones.
        """
        survey = Survey(self._world, {})
        wrong: Wrong = []
        try:
            for record in records:
                names = self._table.owned_names(record)
                dump = survey.again(names)
                if dump is None:
                    continue
                self._baseline.forget_components([record.cid])
                self._baseline.forget_roots(names)
                again, tombstones = partial(survey.again, names), absent.get(record.cid, ())
                verdict = self._verdict(record, came.get(record.cid), dump, again, tombstones)
                if verdict is not None and verdict.proof is Proof.UNFAITHFUL:
                    wrong.append((record, verdict))
                chunks = known_chunks(record, dump)
                self._baseline.set(record.cid, dump, self._world.namespace, chunks)
        finally:
            survey.release()
        return wrong

    def _verdict(
        self,
        record: ComponentRecord,
        came: Received | None,
        dump: Dump,
        again: Callable[[], Dump | None],
        tombstones: tuple[Any, ...],
    ) -> Verdict | None:
        """Return what is known of a rebuilt component, and enter it; None for tombstones."""
        if came is None:
            return None
        payload = partial(rebuilding.source_of, record, self._cache)
        pinned = [pin.path or pin.name for pin in record.pins]
        if tombstones:
            pinned += self._places_of(record, tombstones)
        verdict = judge(self._world, came, dump, payload, again, pinned)
        if tombstones:
            cause = loss_of(tombstones[0]).reason
            verdict = Verdict(Proof.UNFAITHFUL, verdict.differences, cause, tombstones)
        with self._lock:
            self.verification.note(record.cid, proven=verdict.proof is not Proof.OPEN)
        return verdict

    def _places_of(self, record: ComponentRecord, tombstones: tuple[Any, ...]) -> list[str]:
        """Return the paths of tombstones below the variables of a component."""
        namespace = self._world.namespace
        names = [name for name in self._table.owned_names(record) if name in namespace]
        places = Whereabouts({name: namespace[name] for name in names})
        found = [places.of(tombstone) for tombstone in tombstones]
        return [path or name for name, path in filter(None, found)]

    def condemn(self, record: ComponentRecord, verdict: Verdict, origin: str) -> Failure:
        """Bind tombstones to what of a component is unfaithful, which the replica `origin` made."""
        names, namespace = self._table.owned_names(record), self._world.namespace
        survey = Survey(self._world, {})
        try:
            maker = TombstoneMaker(record, origin, namespace, names, self._world.classes)
            losses = maker.bury(verdict, self._drop_quietly, lambda name: survey.again([name]))
        finally:
            survey.release()
        cids = dict.fromkeys([record.cid, *(self._table.owners.get(loss.name) for loss in losses)])
        touched = [known for cid in cids if cid is not None and (known := self._table.records.get(cid))]
        self._baseline.forget_components([known.cid for known in touched])
        self.take_baseline(touched, {})
        with self._lock:
            self.verification.condemn(record.cid, losses)
        told = dict.fromkeys(loss.path or loss.name for loss in losses)
        return Failure(record.cid, tuple(told), shorten(losses[0].reason if losses else verdict.sentence()))

    def suspect(
        self, record: ComponentRecord, verdict: Verdict, origin: str, values: dict[str, Any] | None = None
    ) -> None:
        """Enter what a user's own way to copy spoils, to be tried again; `values` are what was made of it."""
        names, namespace = self._table.owned_names(record), self._world.namespace
        values = namespace if values is None else values
        maker = TombstoneMaker(record, origin, values, names, self._world.classes)
        losses = maker.of_hooks(verdict)
        if losses:
            with self._lock:
                self.verification.suspect(record.cid, losses)

    def take_back(self, records: Sequence[ComponentRecord]) -> None:
        """Unbind components again that stay pending."""
        namespace = self._world.namespace
        names = [name for record in records for name in self._table.owned_names(record)]
        gone = [name for name in names if name in namespace]
        self._drop_quietly([namespace[name] for name in gone])
        for name in gone:
            del namespace[name]
        self._baseline.forget_components([record.cid for record in records])
