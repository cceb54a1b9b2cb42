"""The jobs that are not over, and whose each lease is.

Law: a lease is of one job, and all leases of a job are on one host, or on as many as it wants, the same
number of GPUs on each. A job without leases waits, unless it runs on cores alone: then it has no leases.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from replkernel_scheduler.elastic.types import JobType
from replkernel_scheduler.harvest.types import (
    ChangeWhy,
    Cores,
    JobChange,
    JobEnd,
    JobName,
    JobSpec,
    JobState,
    JobView,
    PastJob,
    type_on_model,
)
from replkernel_scheduler.types import GpuUuid, HostName, Lease, LeaseId, UserName

CHANGES_MAX = 50
"""So many of a job are remembered."""


class JobRecord(msgspec.Struct):
    """A job; `gpus` are those that it runs with, `back` the leases that are wanted back.

    `left` is as of `since` while it runs, `trained` what it did before that. `ending`: it ends once it is
    stopped. `on_hold`: it waits then. `ran_on` is where it was started last. `refused`: why
    it was not given the GPUs that it asked for last. `epoch`, `loss`: what its program told at its last end.
    `changes` are the last ones, `why` the reason of the next: processes that end unasked are lost.
    `leaves`: it is stopped so that this job may start, and goes on with no more than `keeps` GPUs then.
    `hopes_until`: so long it counts on GPUs that notebooks are asked back for it. `seen`: its type, by the
    `speeds` that were seen last, for numbers of GPUs, on the model `seen_on`; `speeds_on` has those of all
    models, in one unit. `core_s` is as `gpu_s`, `begun` when it was started last, and
    `number` which start on cores that was of all.
    `saved_s` is how long it ran before that, up to where it was saved.
    `evicted`: how often notebooks had it leave cores lately; it starts again at `returns_at` at the soonest.
    Of several hosts `host` is the first by name, which has rank 0; where that is lost, what runs on the
    others is over at `gone_at`.
    `failed`: on which hosts its program has failed too often, `failed_at` is the last such attempt, `failure`
    how that ended.
    """

    spec: JobSpec
    left: float | None
    state: JobState = "waiting"
    attempt: int = 0
    asked: int = 0
    host: HostName | None = None
    model: str = ""
    gpus: tuple[GpuUuid, ...] = ()
    leases: dict[LeaseId, Lease] = {}
    back: dict[LeaseId, float] = {}
    since: float = 0.0
    trained: float = 0.0
    ending: JobEnd | None = None
    gpu_s: float = 0.0
    counted_at: float = 0.0
    on_hold: bool = False
    ran_on: HostName | None = None
    refused: str = ""
    epoch: float | None = None
    loss: float | None = None
    changes: tuple[JobChange, ...] = ()
    why: ChangeWhy = "lost"
    leaves: JobName | None = None
    keeps: int = 0
    hopes_until: float = 0.0
    seen: JobType | None = None
    speeds: tuple[tuple[int, float], ...] = ()
    core_s: float = 0.0
    begun: float = 0.0
    evicted: int = 0
    returns_at: float = 0.0
    gone_at: float | None = None
    saved_s: float = 0.0
    speeds_on: dict[str, tuple[tuple[int, float], ...]] = {}
    seen_on: str = ""
    failed: tuple[tuple[HostName, ...], ...] = ()
    failed_at: int = 0
    failure: str = ""
    number: int = 0

    @property
    def span(self) -> int:
        """Return on how many hosts it runs at once."""
        return 1 if self.spec.hosts is UNSET else self.spec.hosts

    @property
    def cores(self) -> Cores | None:
        """Return what it asks of a host where it wants no GPUs."""
        return None if self.spec.cores is UNSET else self.spec.cores

    @property
    def size(self) -> int:
        """Return with which of its type's sizes it runs."""
        return 1 if self.cores else len(self.gpus)

    @property
    def type(self) -> JobType:
        """Return how fast it is with each number of GPUs: as was seen, or as was thought at first."""
        return self.type_on(self.model) if self.model else self.seen or self.spec.type

    def type_on(self, model: str) -> JobType:
        """Return how fast it is on GPUs of a model; where it was not seen there, as it is elsewhere."""
        if self.seen is None or model not in self.speeds_on or model == self.seen_on:
            return self.seen or self.spec.type
        return type_on_model(self.seen, self.speeds, self.speeds_on[model])

    def held(self) -> int:
        """Return how many GPUs it holds."""
        return sum([len(lease.gpus) for lease in self.leases.values()])

    def usable(self) -> tuple[GpuUuid, ...]:
        """Return those GPUs that nobody wants back."""
        return tuple(
            [gpu for lease in self.leases.values() if lease.lease not in self.back for gpu in lease.gpus]
        )

    def usable_on(self) -> dict[HostName, tuple[GpuUuid, ...]]:
        """Return those by their hosts, which are in order."""
        found: dict[HostName, tuple[GpuUuid, ...]] = dict.fromkeys(self.hosts(), ())
        for name, lease in self.leases.items():
            if name not in self.back:
                found[lease.host] += lease.gpus
        return found

    def hosts(self) -> list[HostName]:
        """Return the hosts on which it has GPUs, in order."""
        return sorted({lease.host for lease in self.leases.values()})

    def at_hand(self) -> int:
        """Return how many GPUs it can go on with, as many on each of its hosts."""
        if self.span == 1:
            return len(self.usable())
        each = [len(gpus) for gpus in self.usable_on().values()]
        return self.span * min(each) if len(each) == self.span else 0

    def fits(self, most: int | None = None) -> int:
        """Return the most GPUs that it can go on with, of its own."""
        usable = self.at_hand() if most is None else min(most, self.at_hand())
        return max([size for size in self.type.iteration_s if size <= usable])

    def spares(self, gpus: int) -> list[LeaseId]:
        """Return leases that it can do without, if it goes on with so many GPUs; the newest ones first."""
        found = list[LeaseId]()
        more = {host: len(usable) - gpus // self.span for host, usable in self.usable_on().items()}
        for name, lease in reversed(self.leases.items()):
            if name not in self.back and len(lease.gpus) <= more[lease.host]:
                found.append(name)
                more[lease.host] -= len(lease.gpus)
        return found

    def left_at(self, now: float) -> float:
        """Return what it is thought to have left."""
        done = self._done(now)
        return self.trained + done if self.left is None else max(0.0, self.left - done)

    def pause(self, now: float) -> None:
        """Take note that it does not train any more."""
        done = self._done(now)
        self.trained += done
        if self.left is not None:
            self.left = max(0.0, self.left - done)
        self.since = now

    def ran_s(self, now: float) -> float:
        """Return how long it has run on cores, also before it was saved and had to leave."""
        return self.saved_s + now - self.begun

    def count(self, now: float) -> None:
        """Add up what it had of GPUs; called before that changes."""
        self.gpu_s += self.held() * (now - self.counted_at)
        self.core_s = self.core_s_at(now)
        self.counted_at = now

    def core_s_at(self, now: float) -> float:
        """Return what it had of cores."""
        cores = self.cores
        if cores is None or self.state == "waiting":
            return self.core_s
        return self.core_s + cores.count * (now - self.counted_at)

    def changed(self, gpus: int, why: ChangeWhy, now: float) -> None:
        """Take note that it has so many GPUs from now on."""
        if gpus or (self.changes and self.changes[-1].gpus):
            self.changes = (*self.changes[1 - CHANGES_MAX :], JobChange(now, gpus, why))
        self.why = "lost"

    def tells(self, epoch: float | None, loss: float | None) -> None:
        """Keep what its program told last, if it did."""
        if epoch is not None:
            self.epoch, self.loss = epoch, loss

    def past(self, why: JobEnd, said: str, now: float) -> PastJob:
        """Return it as one that is over."""
        return PastJob(
            self.spec,
            why,
            said,
            self.gpu_s,
            self.ran_on,
            now,
            self.attempt,
            self.epoch,
            self.loss,
            self.core_s,
        )

    def view(self) -> JobView:
        """Return it for others."""
        ends_at = None
        if self.state == "running" and self.left is not None:
            ends_at = self.since + self.type.run_s(self.left, self.size)
        return JobView(
            self.spec,
            self.state,
            self.attempt,
            self.host,
            self.gpus,
            self.held(),
            self.left,
            ends_at,
            self.gpu_s,
            self.on_hold,
            self.ran_on,
        )

    def _done(self, now: float) -> float:
        """Return what it did since it runs: profiles say how fast it is."""
        return (now - self.since) * self.type.rate(self.size) if self.state == "running" else 0.0


class Jobs:
    """All of them, in the order in which they came."""

    def __init__(self) -> None:
        """Start with none."""
        self.by_name: dict[JobName, JobRecord] = {}
        self.of_lease: dict[LeaseId, JobRecord] = {}
        self.on_cores = 0
        """How many of them run, or are to run, on cores alone."""
        self.across = 0
        """How many of them run, or are to run, on several hosts."""
        self.left: list[HostName] = []
        """The hosts that the last job on cores has left just now."""
        self._number_of: dict[JobName, int] = {}
        """Jobs on cores by when they came."""
        self._cores_of: dict[HostName, dict[int, JobRecord]] = {}
        self.starts = 0
        """How many were started on cores so far."""
        self._came = 0

    def add(self, job: JobRecord) -> None:
        """Take a job in, with the leases that it has."""
        self.by_name[job.spec.job] = job
        self.across += job.span > 1
        if job.cores is not None:
            self._came += 1
            self._number_of[job.spec.job] = self._came
            self.on_cores += 1
            if job.host is not None:
                self._settle(job, job.host)
        for lease in job.leases:
            self.of_lease[lease] = job

    def remove(self, job: JobRecord) -> None:
        """Forget a job."""
        del self.by_name[job.spec.job]
        self.across -= job.span > 1
        if job.cores is not None:
            self.unsettle(job)
            del self._number_of[job.spec.job]
            self.on_cores -= 1

    def start(self, job: JobRecord, host: HostName, now: float) -> None:
        """Have a job on cores of a host from now on."""
        self.starts += 1
        job.begun, job.number = now, self.starts
        self._settle(job, host)

    def _settle(self, job: JobRecord, host: HostName) -> None:
        job.host = host
        self._cores_of.setdefault(host, {})[self._number_of[job.spec.job]] = job

    def unsettle(self, job: JobRecord) -> None:
        """Take a job on cores off its host, if it is on one."""
        host, job.host = job.host, None
        if host is None:
            return
        there = self._cores_of[host]
        del there[self._number_of[job.spec.job]]
        if not there:
            del self._cores_of[host]
            self.left.append(host)

    def on_cores_of(self, host: HostName) -> list[JobRecord]:
        """Return the jobs that have cores of a host, in the order in which they came."""
        there = self._cores_of.get(host)
        return [] if there is None else [there[number] for number in sorted(there)]

    def count_on_cores(self, host: HostName) -> int:
        """Return how many jobs have cores of a host."""
        return len(self._cores_of.get(host, ()))

    def take(self, job: JobRecord, lease: Lease, now: float) -> None:
        """Give a job a lease."""
        job.count(now)
        self.of_lease[lease.lease] = job
        job.leases[lease.lease] = lease
        job.host = lease.host if job.span == 1 else job.hosts()[0]

    def leave(self, lease: Lease, now: float) -> JobRecord | None:
        """Take a lease from its job; return whose it was."""
        job = self.of_lease.pop(lease.lease, None)
        if job is not None:
            job.count(now)
            del job.leases[lease.lease]
            job.back.pop(lease.lease, None)
        return job

    def held_by(self, owner: UserName) -> int:
        """Return how many GPUs the jobs of a user hold."""
        return sum([job.held() for job in self.by_name.values() if job.spec.owner == owner])

    def leases_by_host(self) -> dict[HostName, list[LeaseId]]:
        """Return the leases of all jobs by their hosts."""
        found: dict[HostName, list[LeaseId]] = {}
        for name, job in self.of_lease.items():
            found.setdefault(job.leases[name].host, []).append(name)
        return found

    def waiting(self) -> list[JobRecord]:
        """Return who waits for GPUs, the first ones first."""
        return [job for job in self._waiting() if job.cores is None]

    def waiting_for_cores(self) -> list[JobRecord]:
        """Return who waits for cores and memory alone, the first ones first."""
        return [job for job in self._waiting() if job.cores is not None] if self.on_cores else []

    def _waiting(self) -> list[JobRecord]:
        return sorted(
            [job for job in self.by_name.values() if job.state == "waiting" and not job.on_hold],
            key=lambda job: -job.spec.priority,
        )

    def promised(self) -> set[JobName]:
        """Return who is to start on what another job leaves."""
        return {job.leaves for job in self.by_name.values() if job.leaves is not None}

    def on(self, host: HostName) -> Iterator[JobRecord]:
        """Yield the jobs that have GPUs, or cores, of a host."""
        return (job for job in list(self.by_name.values()) if job.state != "waiting" and job.host == host)
