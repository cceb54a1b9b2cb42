"""Who computes, loads, waits, and has GPUs promised.

Law: free GPUs, those of jobs, and those that promises have add up to the pool. What comes free goes to
promises first, in their order, and then to the job that was passed too long, if there is one. A job's
remaining time shrinks only while it computes. Waiting jobs lie sorted by it for each number of GPUs, so the
next one that fits is found without a scan; running ones by when they would be over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Literal, TypeAlias

from replkernel_scheduler.policies.protocol import Rank
from replkernel_scheduler.pool.types import PoolLook, PoolWanted
from replkernel_scheduler.pool.victims import whom_to_stop

State: TypeAlias = Literal["waiting", "deferred", "promised", "loading", "running", "pausing"]


class PoolJob:
    """One; `locked`: a deferral has claimed it, so no other arrival stops it."""

    __slots__ = (
        "came",
        "ends",
        "has",
        "left_s",
        "locked",
        "number",
        "since",
        "state",
        "waits_since",
        "wanted",
    )

    def __init__(self, wanted: PoolWanted, number: int, came: float = 0.0) -> None:
        """Start as waiting."""
        self.wanted, self.number, self.came = wanted, number, came
        self.state: State = "waiting"
        self.left_s = wanted.run_s
        self.since = self.ends = self.waits_since = 0.0
        self.has = 0
        self.locked = False

    def remaining_s(self, now: float) -> float:
        """Return T': what it has yet to compute."""
        return max(0.0, self.left_s - (now - self.since)) if self.state == "running" else self.left_s

    def look(self, now: float) -> PoolLook:
        """Return it as policies see it."""
        wanted = self.wanted
        done_s = wanted.run_s - self.remaining_s(now)
        return PoolLook(
            wanted.job, wanted.gpus, wanted.run_s, done_s, self.came, wanted.user, wanted.requested_s
        )


Entry: TypeAlias = tuple[float, int, PoolJob]


class PoolBook:
    """All jobs of a pool of `gpus` GPUs."""

    def __init__(self, gpus: int) -> None:
        """Start with all GPUs free."""
        self.gpus = self.free = gpus
        self.jobs: dict[str, PoolJob] = {}
        self.promises: list[PoolJob] = []
        self.overdue: PoolJob | None = None
        """The job that was passed for too long: it collects what nobody was promised, until it can load."""
        self.waiting: dict[int, list[Entry]] = {}
        self.waiting_count = 0
        self._by_age: deque[tuple[float, PoolJob]] = deque()
        """Who began to wait when, the oldest first; some have left meanwhile, or wait anew."""
        self._passed: list[tuple[float, int, float, PoolJob]] = []
        """Who has waited for too long, the shortest first; likewise."""
        self.by_end: list[Entry] = []
        """Jobs that load or compute, by when they would be over."""

    def wait(self, job: PoolJob, now: float) -> None:
        """Let a job wait from now on."""
        job.state, job.waits_since = "waiting", now
        self._by_age.append((now, job))
        self.waiting_count += 1
        insort(self.waiting.setdefault(job.wanted.gpus, []), (job.left_s, job.number, job))

    def no_longer_waits(self, job: PoolJob) -> None:
        """Take a job out of its queue."""
        queue = self.waiting[job.wanted.gpus]
        del queue[bisect_left(queue, (job.left_s, job.number))]
        self.waiting_count -= 1

    def passed_too_long(self, before: float) -> PoolJob | None:
        """Return the shortest job that waits since `before` or longer; None while somebody collects."""
        by_age, passed = self._by_age, self._passed
        while by_age and by_age[0][0] <= before:
            since, job = by_age.popleft()
            if job.state == "waiting" and job.waits_since == since:
                heappush(passed, (job.left_s, job.number, since, job))
        while passed and (passed[0][3].state != "waiting" or passed[0][3].waits_since != passed[0][2]):
            heappop(passed)
        return passed[0][3] if passed and self.overdue is None else None

    def shortest_that_fits(self, gpus: int) -> PoolJob | None:
        """Return the waiting job with the least remaining time that needs no more than `gpus`."""
        heads = [queue[0] for width, queue in self.waiting.items() if width <= gpus and queue]
        return min(heads)[2] if heads else None

    def shortest(self, running: Sequence[Entry], gpus: int) -> Iterator[PoolJob]:
        """Yield jobs by what they have left, of those that run and wait, that fit into `gpus` together.

        One that does not fit is passed, and so are all as wide as it that are behind it.
        """
        queues: list[Sequence[Entry]] = [running, *self.waiting.values()]
        heads = [(queue[0], number, 0) for number, queue in enumerate(queues) if queue]
        heapify(heads)
        while heads and gpus:
            (_, _, job), number, place = heads[0]
            fits = job.wanted.gpus <= gpus
            if fits:
                gpus -= job.wanted.gpus
                yield job
            if place + 1 < len(queues[number]) and (fits or not number):
                heapreplace(heads, (queues[number][place + 1], number, place + 1))
            else:
                heappop(heads)

    def ranked(self, rank: Callable[[PoolLook, float], Rank], gpus: int, now: float) -> Iterator[PoolJob]:
        """Yield jobs in the order of `rank`, of those that run and wait, that fit into `gpus` together."""
        jobs = [job for _, _, job in self.by_end]
        jobs += [job for queue in self.waiting.values() for _, _, job in queue]
        for job in sorted(jobs, key=lambda job: (rank(job.look(now), now), job.number)):
            if job.wanted.gpus <= gpus:
                gpus -= job.wanted.gpus
                yield job

    def promise(self, job: PoolJob) -> None:
        """Promise a job its GPUs: it gets what is free now, and what comes free."""
        job.state = "promised"
        job.has = min(self.free, job.wanted.gpus)
        self.free -= job.has
        self.promises.append(job)

    def collect_for(self, job: PoolJob) -> None:
        """Let a job that was passed too long have what is free, and what comes free beyond all promises."""
        self.no_longer_waits(job)
        job.state = "promised"
        job.has = min(self.free, job.wanted.gpus)
        self.free -= job.has
        self.overdue = job

    def give_back(self, gpus: int) -> None:
        """Hand GPUs that came free to promises, then to who was passed too long, and keep the rest free."""
        for job in [*self.promises, self.overdue] if self.overdue else self.promises:
            took = min(gpus, job.wanted.gpus - job.has)
            job.has += took
            gpus -= took
        self.free += gpus

    def kept(self) -> list[PoolJob]:
        """Return and forget the promises that can be kept."""
        ready = [job for job in self.promises if job.has == job.wanted.gpus]
        if ready:
            self.promises = [job for job in self.promises if job.has < job.wanted.gpus]
        overdue = self.overdue
        if overdue is not None and overdue.has == overdue.wanted.gpus:
            self.overdue = None
            ready.append(overdue)
        return ready

    def load(self, job: PoolJob, now: float) -> None:
        """Let a job load on the GPUs that it has."""
        job.state, job.since = "loading", now
        self._place(job, now + job.wanted.load_s + job.left_s)

    def loaded(self, job: PoolJob, now: float) -> None:
        """Let a job compute from now on."""
        self.unplace(job)
        job.state, job.since = "running", now
        self._place(job, now + job.left_s)

    def unplace(self, job: PoolJob) -> None:
        """Take a job out of the order of ends."""
        del self.by_end[bisect_left(self.by_end, (job.ends, job.number))]

    def victims(self, wanted: PoolWanted, remaining_s: float, now: float) -> list[PoolJob]:
        """Return whom to stop for a job, longest first; none if that is not enough (spec 3.2).

        Those that turn out not to be needed are left alone, the largest first.
        """
        return whom_to_stop(self._longest(remaining_s, now), self.free, wanted.gpus)

    def _longest(self, remaining_s: float, now: float) -> Iterator[tuple[int, PoolJob]]:
        """Yield jobs, with their GPUs, that have more left than that, and may be stopped; longest first."""
        for _, _, job in reversed(self.by_end):
            if job.ends - now <= remaining_s:
                return
            if not job.locked and job.remaining_s(now) > remaining_s:
                yield job.wanted.gpus, job

    def _place(self, job: PoolJob, ends: float) -> None:
        job.ends = ends
        insort(self.by_end, (ends, job.number, job))
