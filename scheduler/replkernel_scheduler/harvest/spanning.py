"""Jobs on several hosts at once: when they start, and grow.

Laws: such a job has as many GPUs of one model on each of its hosts, all at once or none. It takes what is
idle and asks for nothing of other jobs: SideCar's rules, which know a place at a time, leave it alone. Of all
models and numbers that are idle it takes those with which it is thought to be done first, and grows where it
is thought to be done sooner by that. One that waits says what it needs, and how much of that is idle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from replkernel_scheduler.elastic.types import SIDECAR
from replkernel_scheduler.events import GpusAwaited
from replkernel_scheduler.harvest.asking import Asking
from replkernel_scheduler.harvest.chances import Chances, needs
from replkernel_scheduler.harvest.jobs import JobRecord, Jobs
from replkernel_scheduler.harvest.leasing import SHAPES_MAX, Leasing, Place
from replkernel_scheduler.harvest.openings import LEAVES_S, samples_of
from replkernel_scheduler.harvest.reach import Reach
from replkernel_scheduler.harvest.types import ChangeWhy, ReshapeJob, StartJob
from replkernel_scheduler.types import HostName, UserName

ASKS_EVERY_S = 10.0
"""What notebooks have left is asked back for one job no more often."""
HOLDS_UP_S = 600.0
"""Others do not grow for so long while a job waits for several hosts."""


class Opening(NamedTuple):
    """What a job can have at once, the one to take first: when it is done, so many GPUs of a model, where."""

    run_s: float
    gpus: int
    rank: int
    model: str
    hosts: tuple[HostName, ...]


class Starts(Protocol):
    """How a job is begun, and goes on."""

    def goes_on(self, job: JobRecord, now: float, why: ChangeWhy) -> None:
        """Have it start with what it has."""
        ...

    def begins(
        self, job: JobRecord, how: type[StartJob] | type[ReshapeJob], now: float, why: ChangeWhy
    ) -> None:
        """Have it started or reshaped with what it has."""
        ...


class Spanning:
    """Decides about the jobs that want several hosts; `reach` says where each can be started."""

    def __init__(
        self,
        leasing: Leasing,
        jobs: Jobs,
        asking: Asking,
        reach: Reach,
        chances: Chances,
        acts: Starts,
    ) -> None:
        """Decide about `jobs`."""
        self._leasing, self._jobs, self._asking = leasing, jobs, asking
        self._reach, self._chances, self._acts = reach, chances, acts

    def hold_up(self, jobs: Iterable[JobRecord], now: float) -> bool:
        """Say whether others do not grow while one of these waits: not where it waits in vain, nor for ever.

        Nor where it waits for its own owner's jobs, as his quota says.
        """
        held: dict[UserName, int] = {}
        for job in jobs:
            if (
                job.leases
                or job.on_hold
                or job.cores
                or (job.span > 1 and now >= job.counted_at + HOLDS_UP_S)
            ):
                continue
            owner = job.spec.owner
            quota = self._leasing.gpu_quota(owner)
            if quota is not None and owner not in held:
                held[owner] = self._jobs.held_by(owner)
            allowed = quota is None or held[owner] + job.spec.type.least <= quota
            if allowed and self._chances.could_run(job):
                return True
        return False

    def starts(self, job: JobRecord, hosts: Collection[HostName], now: float) -> bool:
        """Start a job on hosts that have enough idle, with what it is done with first; say if it did."""
        job.refused = why = self._chances.not_here(job)
        if why:
            return False
        idle = {
            model: {host: self._idle(job, Place(host, model)) for host in hosts}
            for model in self._chances.models(job, hosts)
        }
        for opening in self._openings(job, idle):
            each = opening.gpus // job.span
            wanted = [Place(host, opening.model) for host in opening.hosts for _ in range(each)]
            if self._asking.ask_for(job, wanted, now):
                self._acts.goes_on(job, now, "idle")
                return True
        if job.refused:
            return False
        if self._reach.of(job) is not None and job.hopes_until <= now:
            job.hopes_until = now + ASKS_EVERY_S
            self._asks_back(job, idle, now)
        job.refused = needs(job, {model: on.values() for model, on in idle.items()}, "idle")
        return False

    def grow(self, now: float) -> None:
        """Have those that run grow into what is idle on each of their hosts."""
        for job in list(self._jobs.by_name.values()) if self._jobs.across else ():
            reached = self._reach.within(job, job.hosts())
            if job.span > 1 and job.state == "running" and reached:
                self._grows(job, now)

    def _grows(self, job: JobRecord, now: float) -> None:
        places = [Place(host, job.model) for host in job.hosts()]
        more = min([self._idle(job, place) for place in places])
        for gpus in self._asking.sizes(job, job.held(), job.held() + job.span * more):
            missing = (gpus - job.held()) // job.span
            wanted = [place for place in places for _ in range(missing)]
            if self._is_sooner(job, gpus, now) and self._asking.ask_for(job, wanted, now):
                job.pause(now)
                self._acts.begins(job, ReshapeJob, now, "more idle")
                return

    def _is_sooner(self, job: JobRecord, gpus: int, now: float) -> bool:
        """Say whether a job is thought to be done sooner if it is started again with more GPUs."""
        left, kind = job.left_at(now), job.type
        again_s = LEAVES_S + SIDECAR.process_start_s
        return again_s + kind.run_s(left, gpus) < kind.run_s(left, len(job.gpus))

    def _idle(self, job: JobRecord, place: Place) -> int:
        return self._leasing.room(place.host, place.model, job.spec.vram_gb).gpus

    def _openings(self, job: JobRecord, idle: Mapping[str, Mapping[HostName, int]]) -> list[Opening]:
        """Return what a job can have of what is idle, the one with which it is done first before others."""
        left, found = samples_of(job), list[Opening]()
        for gpus in self._asking.sizes(job, 0, SHAPES_MAX):
            for rank, (model, on) in enumerate(idle.items()):
                good = self._best(
                    job, {host: count for host, count in on.items() if count >= gpus // job.span}
                )
                if good:
                    run_s = job.type_on(model).run_s(left, gpus)
                    found.append(Opening(run_s, gpus, rank, model, tuple(good)))
        return sorted(found)

    def _best(self, job: JobRecord, idle: Mapping[HostName, int]) -> list[HostName]:
        """Return as many hosts as a job wants: where it has not failed, then those with most idle."""
        best = sorted(idle, key=lambda host: (self._chances.tried(job, host), -idle[host]))[: job.span]
        return [] if len(best) < job.span or self._chances.avoids(job, best) else best

    def _asks_back(self, job: JobRecord, idle_of: Mapping[str, Mapping[HostName, int]], now: float) -> None:
        """Have notebooks asked for what a job misses, where as many hosts as it wants can be had by that."""
        spec = job.spec
        least, spares = spec.type.least // job.span, tuple(self._jobs.of_lease)
        want = GpusAwaited((), least, gpu_model=spec.gpu_model, vram_gb=spec.vram_gb)
        hosts = next(iter(idle_of.values()), {})
        having = {
            host: self._asking.models(msgspec.structs.replace(want, hosts=(host,)), spares, now)
            for host in hosts
        }
        for model, on in idle_of.items():
            idle = {host: gpus for host, gpus in on.items() if model in having[host]}
            best = self._best(job, idle)
            if not best:
                continue
            for host in best:
                if idle[host] < least:
                    on_host = GpusAwaited((host,), least, gpu_model=model, vram_gb=spec.vram_gb)
                    self._asking.ask_back([on_host], spares, now)
            return
