"""The core of a pool: what comes, loads, stops and ends, and who is loaded and stopped therefore.

Law: a pure state machine. A free GPU is used at once (spec 3.2, 3.3) unless the policy looks at all jobs at
intervals only; a job is stopped for another only if that has less left to compute. Nobody is stopped while
its state is being saved, and a job that a deferral has locked only by that deferral. After the policy's
patience nobody is passed by longer jobs for want of room: what comes free is collected for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.pool.arrivals import Arrivals, Watch
from replkernel_scheduler.pool.book import PoolBook, PoolJob
from replkernel_scheduler.pool.protocol import Dice, Preempting
from replkernel_scheduler.pool.types import (
    Context,
    LoadJob,
    PauseJob,
    PoolEffect,
    PoolEvent,
    PoolLoaded,
    PoolOver,
    PoolPaused,
    PoolTime,
    PoolWanted,
    RefusePoolJob,
)

AT_ONCE_S = 0.5
"""A shorter deferral is none."""


class PoolCore:
    """A pool of GPUs and its jobs."""

    def __init__(self, gpus: int, policy: Preempting, dice: Dice) -> None:
        """Start with all GPUs free."""
        self.book = PoolBook(gpus)
        self._policy, self._dice, self._arrivals = policy, dice, Arrivals()
        self._deferred: dict[str, tuple[PoolJob, list[PoolJob]]] = {}
        self._timers: list[tuple[float, int, PoolJob]] = []
        self._next_pass: float | None = None
        self._changed = False
        self._number = 0

    def handle(self, event: PoolEvent, now: float) -> list[PoolEffect]:
        """Take one event; raise SchedulerError for one that cannot follow what came before."""
        match event:
            case PoolWanted():
                return self._wanted(event, now)
            case PoolTime():
                return self._time(now)
            case PoolLoaded():
                self.book.loaded(self._job(event.job, "loading"), now)
                return []
            case PoolPaused():
                job = self._job(event.job, "pausing")
                return self._stopped(job, now)
            case PoolOver():
                job = self._job(event.job, "running")
                del self.book.jobs[event.job]
                self.book.unplace(job)
                return self._freed(job.has, now)

    def deadline(self) -> float | None:
        """Return when to hand in PoolTime; None: nothing is due."""
        due = [self._timers[0][0]] if self._timers else []
        result = self._arrivals.next_result()
        due += [at for at in (result, self._next_pass) if at is not None]
        return min(due, default=None)

    def check_invariants(self) -> None:
        """Check that GPUs add up; O(n), for tests."""
        book = self.book
        held = sum(job.has for job in book.jobs.values())
        assert book.free >= 0 and book.free + held == book.gpus
        for job in book.jobs.values():
            full = job.state in ("loading", "running", "pausing")
            assert job.has == (job.wanted.gpus if full else job.has if job.state == "promised" else 0)
        assert len(book.by_end) == sum(job.state in ("loading", "running") for job in book.jobs.values())

    def _wanted(self, wanted: PoolWanted, now: float) -> list[PoolEffect]:
        book, policy = self.book, self._policy
        if wanted.job in book.jobs:
            raise SchedulerError(f"job {wanted.job} was asked for twice: give each job an id of its own.")
        if not 0 < wanted.gpus <= book.gpus:
            return [RefusePoolJob(wanted.job, f"the pool has {book.gpus} GPUs")]
        self._arrivals.saw(wanted, book.free, now)
        self._number += 1
        job = book.jobs[wanted.job] = PoolJob(wanted, self._number, now)
        if policy.every_s is not None:
            book.wait(job, now)
            self._changed = True
            self._arm(now)
            return []
        return self._begin(job, now, deferrable=True)

    def _begin(self, job: PoolJob, now: float, *, deferrable: bool) -> list[PoolEffect]:
        """Load a job, stop others for it, have it wait for a while before that, or let it wait."""
        book, wanted = self.book, job.wanted
        if book.free >= wanted.gpus and not self._passes_too_long(job, now):
            return self._promised(job, (), now)
        victims = book.victims(wanted, job.left_s, now) if self._policy.on_arrival else []
        if not victims:
            book.wait(job, now)
            return []
        if deferrable and self._policy.defers:
            pause_s = max([victim.wanted.pause_s for victim in victims])
            context = Context(self._arrivals.between_s(now), job.left_s, wanted.load_s, pause_s)
            defer_s = self._policy.defer_s(context, self._dice)
            self._arrivals.watched.append(Watch(context, wanted.gpus, max(0.0, defer_s), now))
            if defer_s >= AT_ONCE_S:
                for victim in victims:
                    victim.locked = True
                job.state = "deferred"
                self._deferred[wanted.job] = (job, victims)
                heappush(self._timers, (now + defer_s, job.number, job))
                return []
        return self._promised(job, victims, now)

    def _promised(self, job: PoolJob, victims: Sequence[PoolJob], now: float) -> list[PoolEffect]:
        self.book.promise(job)
        effects: list[PoolEffect] = []
        for victim in victims:
            effects += self._stop(victim, now)
        return effects + self._keep_promises(now)

    def _stop(self, job: PoolJob, now: float) -> list[PoolEffect]:
        """Stop a job: one that only loads has nothing to save, and its GPUs are free at once."""
        saves = job.state == "running"
        self.book.unplace(job)
        job.left_s = job.remaining_s(now)
        job.state = "pausing"
        effects: list[PoolEffect] = [PauseJob(job.wanted.job, saves)]
        return effects if saves else effects + self._stopped(job, now)

    def _stopped(self, job: PoolJob, now: float) -> list[PoolEffect]:
        gpus, job.has = job.has, 0
        self.book.wait(job, now)
        return self._freed(gpus, now)

    def _freed(self, gpus: int, now: float) -> list[PoolEffect]:
        """Use GPUs that came free: promises first, deferred jobs next, then the shortest that fit."""
        book = self.book
        book.give_back(gpus)
        effects = self._keep_promises(now)
        if self._policy.every_s is not None:
            self._changed = True
            self._arm(now)
            return effects
        for name, (job, _) in list(self._deferred.items()):
            if book.free >= job.wanted.gpus:
                self._unlock(name)
                effects += self._promised(job, (), now)
        while book.free and (shortest := book.shortest_that_fits(book.free)) is not None:
            if self._passes_too_long(shortest, now):
                effects += self._keep_promises(now)
                continue
            book.no_longer_waits(shortest)
            effects += self._promised(shortest, (), now)
        return effects

    def _passes_too_long(self, job: PoolJob, now: float) -> bool:
        """Say whether a job would pass a shorter one that was passed too long; that one collects then."""
        patience_s = self._policy.patience_s
        passed = None if patience_s is None else self.book.passed_too_long(now - patience_s)
        if passed is None or (passed.left_s, passed.number) >= (job.left_s, job.number):
            return False
        self.book.collect_for(passed)
        return True

    def _keep_promises(self, now: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        for job in self.book.kept():
            self.book.load(job, now)
            effects.append(LoadJob(job.wanted.job))
        return effects

    def _time(self, now: float) -> list[PoolEffect]:
        for result in self._arrivals.results(now):
            self._policy.learn(result)
        effects: list[PoolEffect] = []
        while self._timers and self._timers[0][0] <= now:
            job = heappop(self._timers)[2]
            if job.state == "deferred":
                self._unlock(job.wanted.job)
                effects += self._begin(job, now, deferrable=False)
        if self._next_pass is not None and self._next_pass <= now:
            self._next_pass = None
            effects += self._pass(now)
            self._arm(now)
        return effects

    def _pass(self, now: float) -> list[PoolEffect]:
        """Look at all jobs: those with the least left (or first by rank) that fit together go on."""
        policy = self._policy
        if not self._changed and not policy.ranks:
            return []
        self._changed = False
        book = self.book
        running = sorted((job.remaining_s(now), job.number, job) for _, _, job in book.by_end)
        # GPUs of jobs that are being stopped belong to promises; what those lack beyond that is spoken for.
        stopping = book.gpus - book.free - sum(job.has for job in book.promises)
        stopping -= sum(job.has for _, _, job in running)
        lacking = sum(job.wanted.gpus - job.has for job in book.promises)
        left = book.free + sum(job.has for _, _, job in running) - max(0, lacking - stopping)
        chosen = list(book.ranked(policy.rank, left, now) if policy.ranks else book.shortest(running, left))
        going_on = {job.number for job in chosen}
        stops = [job for _, _, job in running if job.number not in going_on]
        effects: list[PoolEffect] = []
        for job in chosen:
            if job.state != "waiting":
                continue
            book.no_longer_waits(job)
            book.promise(job)
        for job in stops:
            effects += self._stop(job, now)
        return effects + self._keep_promises(now)

    def _arm(self, now: float) -> None:
        """Have the next pass at the next full interval, while there is somebody who waits."""
        every_s = self._policy.every_s
        if every_s is not None and self._next_pass is None and self.book.waiting_count:
            self._next_pass = (now // every_s + 1) * every_s

    def _unlock(self, name: str) -> None:
        for victim in self._deferred.pop(name)[1]:
            victim.locked = False

    def _job(self, name: str, state: str) -> PoolJob:
        job = self.book.jobs.get(name)
        if job is None or job.state != state:
            found = "is not known" if job is None else f"is {job.state}"
            raise SchedulerError(f"job {name} {found}, not {state}: hand in what happened once.")
        return job
