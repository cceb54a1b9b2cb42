"""GPUs that linger give way to jobs of an engine, which the scheduler gives nothing itself.

Laws: only what lingers is asked back, and no more than the jobs need beside what is idle or on its way
back; a job that would not fit all the same has nothing asked back; the largest jobs are looked at first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from replkernel_scheduler.cards import gpus_freed
from replkernel_scheduler.events import GpusAwaited, GpusWanted
from replkernel_scheduler.hosts import LeaseRecord, Pool
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.serving import Serving
from replkernel_scheduler.types import LeaseId

JOBS_MAX = 256
"""So many jobs are looked at in one event; the others are when they are said again."""


class _Spared(NamedTuple):
    """What is not asked back: these leases, and what began to linger later (None: nothing is too young)."""

    leases: frozenset[LeaseId]
    rested_since: float | None


class Yielding:
    """Asks back what lingers for jobs that are no kernels."""

    def __init__(self, parts: Parts, serving: Serving) -> None:
        """Decide about `parts`."""
        self._parts, self._serving = parts, serving

    def wanted(self, event: GpusWanted) -> None:
        """Ask back what these jobs need."""
        if self._parts.policies.keeps:
            return
        but = _Spared(frozenset(event.spares), event.rested_since)
        promised: dict[int, int] = defaultdict(int)
        """For each pool, how many GPUs go to jobs that were looked at before."""
        seen: dict[int, tuple[int, int]] = {}
        """How many are free there and how many may be asked back, as long as nothing is."""
        in_vain: set[GpusAwaited] = set()
        for job in _by_size(event):
            if job in in_vain:
                continue  # Less is left since then, never more.
            best: tuple[int, str, Pool] | None = None
            for pool in self._pools(job, event):
                if id(pool) not in seen:
                    seen[id(pool)] = len(pool.idle) + _comes_free(pool, but), _yields(pool, but)
                free, yields = seen[id(pool)]
                missing = max(0, job.gpus - (free - promised[id(pool)]))
                found = missing, pool.host.name, pool
                if missing <= yields and (best is None or found[:2] < best[:2]):
                    best = found
            if best is None:
                in_vain.add(job)
                continue
            missing, _, pool = best
            if missing:
                self._ask_back(pool, missing, but)
                del seen[id(pool)]
            promised[id(pool)] += job.gpus

    def models(self, event: GpusWanted) -> set[str]:
        """Return of which models a host has all that such a job needs, or would get it back."""
        but = _Spared(frozenset(event.spares), event.rested_since)
        return {
            pool.model
            for job in (event.jobs if not self._parts.policies.keeps else ())
            for pool in self._pools(job, event)
            if len(pool.idle) + _comes_free(pool, but) + _yields(pool, but) >= job.gpus
        }

    def _pools(self, job: GpusAwaited, event: GpusWanted) -> Iterator[Pool]:
        by_name = self._parts.hosts.by_name
        for name in dict.fromkeys(job.hosts):
            host = by_name.get(name)
            if host is None or (event.rested_since is not None and host.claims):
                continue  # What comes free there is a cell's.
            for pool in host.pools:
                suits = job.gpu_model in ("", pool.model) and pool.sold_with(job.vram_gb)
                if suits and len(pool.uuids) >= job.gpus:
                    yield pool

    def _ask_back(self, pool: Pool, gpus: int, but: _Spared) -> None:
        """Ask so many GPUs back of those that linger, first what was granted first."""
        for records in _units(_resting(pool, but)):
            if gpus <= 0:
                return
            gpus -= _frees(records)
            for record in records:
                self._serving.ask_back(record)


def _resting(pool: Pool, but: _Spared) -> list[LeaseRecord]:
    """Return the leases of a pool that linger and may be asked back."""
    since = but.rested_since
    return [
        record
        for record in pool.host.leases.values()
        if record.pool is pool
        and record.phase == "lingering"
        and record.lease.lease not in but.leases
        and (since is None or record.rested_at <= since)
    ]


def _units(resting: list[LeaseRecord]) -> list[list[LeaseRecord]]:
    """Return leases as they can be asked back, oldest first: those of shares with all others on the card."""
    units: dict[int, list[LeaseRecord]] = {}
    for record in sorted(resting, key=lambda record: record.lease.fence):
        units.setdefault(id(record if record.card is None else record.card), []).append(record)
    return [records for records in units.values() if _frees(records)]


def _frees(records: list[LeaseRecord]) -> int:
    """Return how many GPUs come free with a unit; the rest of its card may be on its way back already."""
    card = records[0].card
    if card is None:
        return len(records[0].lease.gpus)
    return int(all(other.phase == "reclaiming" or other in records for other in card.records.values()))


def _comes_free(pool: Pool, but: _Spared) -> int:
    """Return how many GPUs of a pool are on their way back, and nobody's then."""
    if but.rested_since is None:
        return pool.reclaiming
    return gpus_freed(
        [
            record
            for record in pool.host.leases.values()
            if record.pool is pool
            and record.phase == "reclaiming"
            and not record.kept
            and record.lease.lease not in but.leases
        ]
    )


def _yields(pool: Pool, but: _Spared) -> int:
    """Return how many GPUs of a pool may be asked back."""
    if not but.leases and but.rested_since is None:
        return pool.lingering
    return sum(_frees(records) for records in _units(_resting(pool, but)))


def _by_size(event: GpusWanted) -> Iterator[GpusAwaited]:
    """Return each of the jobs, the largest first, JOBS_MAX at most."""
    jobs = sorted((job for job in event.jobs if job.gpus > 0), key=lambda job: -job.gpus)
    looked_at = 0
    for job in jobs:
        for _ in range(min(job.count, JOBS_MAX - looked_at)):
            looked_at += 1
            yield job
