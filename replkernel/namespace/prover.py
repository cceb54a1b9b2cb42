"""Takes the baseline of what was rebuilt, proves it by the same dump, and deals with what is not as it came.

What differs is built once more, for the loading of another component may have changed it; what still
differs is unfaithful: tombstones take its place. Law: the common case dumps each component once, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from replkernel.namespace import rebuild as rebuilding
from replkernel.namespace.dump import Dump
from replkernel.namespace.faith import FaithBook, graves_of, losses_for
from replkernel.namespace.holdings import Holdings
from replkernel.namespace.proof import Proof, Received, Verdict, judge
from replkernel.namespace.rebuild import Failure, Rebuilder
from replkernel.namespace.shipping import known_chunks
from replkernel.namespace.survey import Survey
from replkernel.namespace.tombstone import shorten
from replkernel.objects.cache import BlobCache
from replkernel.records import ComponentId, ComponentRecord

Wrong = list[tuple[ComponentRecord, Verdict]]


class Prover:
    """Proves rebuilt components for one process; `faith` is what it found. Runs on the main thread."""

    def __init__(self, holdings: Holdings, cache: BlobCache) -> None:
        self._cache = cache
        self._world = holdings.world
        self._table = holdings.table
        self._baseline = holdings.baseline
        self._lock = holdings.lock
        self._drop_quietly = holdings.drop_quietly
        self.faith = FaithBook()

    def prove(self, rebuilder: Rebuilder, lost: Sequence[ComponentRecord]) -> Wrong:
        """Take the baseline of all that `rebuilder` did, and of what is `lost`; return what is unfaithful."""
        self.take_baseline(lost, {})
        wrong = self.take_baseline(rebuilder.done, rebuilder.came)
        if not wrong:
            return []
        for record, _ in wrong:
            rebuilder.build_anew(record)
        wrong = self.take_baseline(rebuilder.done, rebuilder.came)
        causes = rebuilder.absent
        return [
            (record, msgspec.structs.replace(why, cause=causes.get(record.cid, ""))) for record, why in wrong
        ]

    def take_baseline(
        self, records: Sequence[ComponentRecord], came: Mapping[ComponentId, Received]
    ) -> Wrong:
        """Fingerprint rebuilt components here: another process's fingerprints say nothing in this one.

        The same dump proves what `came`; what is not as it came is returned.
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
                verdict = self._verdict(record, came.get(record.cid), dump, partial(survey.again, names))
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
    ) -> Verdict | None:
        """Return what is known of a rebuilt component, and enter it; None for tombstones."""
        if came is None:
            return None
        payload = partial(rebuilding.source_of, record, self._cache)
        pinned = [pin.path or pin.name for pin in record.pins]
        verdict = judge(self._world, came, dump, payload, again, pinned)
        with self._lock:
            self.faith.note(record.cid, verdict)
        return verdict

    def condemn(self, record: ComponentRecord, verdict: Verdict, origin: str) -> Failure:
        """Bind tombstones to the variables of an unfaithful component, which the replica `origin` made."""
        names, namespace = self._table.owned_names(record), self._world.namespace
        losses = losses_for(record, namespace, self._world.classes, names, origin, verdict)
        graves = {name: grave for name, grave in graves_of(losses).items() if name in namespace}
        self._drop_quietly([namespace[name] for name in graves])
        namespace.update(graves)
        cids = dict.fromkeys([record.cid, *(self._table.owners.get(name) for name in graves)])
        touched = [known for cid in cids if cid is not None and (known := self._table.records.get(cid))]
        self._baseline.forget_components([known.cid for known in touched])
        self.take_baseline(touched, {})
        with self._lock:
            self.faith.condemn(record.cid, losses.values())
        return Failure(record.cid, tuple(names), shorten(verdict.sentence()))

    def take_back(self, records: Sequence[ComponentRecord]) -> None:
        """Unbind components again that stay pending."""
        namespace = self._world.namespace
        names = [name for record in records for name in self._table.owned_names(record)]
        gone = [name for name in names if name in namespace]
        self._drop_quietly([namespace[name] for name in gone])
        for name in gone:
            del namespace[name]
        self._baseline.forget_components([record.cid for record in records])
