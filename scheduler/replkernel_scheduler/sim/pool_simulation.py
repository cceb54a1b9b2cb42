"""The driver of the core of a pool: loading, computing and saving take their times, and each end goes back.

Law: it holds no rule of scheduling. What loading and saving take is drawn once for each job, in the order of
arrivals, so it is the same under every policy. W + L + T + P is what a job took: each second counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.events import ARRIVES, TIMERS
from replkernel_scheduler.pool.core import PoolCore
from replkernel_scheduler.pool.types import (
    LoadJob,
    PauseJob,
    PoolEffect,
    PoolEvent,
    PoolLoaded,
    PoolOver,
    PoolPaused,
    PoolTime,
    PoolWanted,
)
from replkernel_scheduler.sim.driver import Driver, Watcher, job_in
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.figures import Figures, RowSink
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.pool_way import PoolWay
from replkernel_scheduler.sim.records import Job, Record
from replkernel_scheduler.sim.task import Parts, Task

FREES = 0


class PoolRun:
    """A job's story; `since` is when its present state began, `version` counts its states."""

    __slots__ = ("job", "left_s", "parts", "since", "state", "task", "version", "wanted")

    def __init__(self, task: Task, wanted: PoolWanted) -> None:
        """Start as waiting."""
        self.task, self.wanted = task, wanted
        self.parts = Parts()
        task.parts = self.parts
        self.left_s = wanted.run_s
        self.since, self.version = task.submitted, 0
        self.state = "waiting"

    def turn(self, state: str, now: float) -> float:
        """Go over to another state; return how long the last one was."""
        took_s = now - self.since
        self.since, self.state = now, state
        self.version += 1
        return took_s


class PoolSimulation(Driver):
    """One run of one trace of jobs in one way."""

    def __init__(
        self,
        records: Iterable[Record],
        origin: float,
        way: PoolWay,
        plan: Plan,
        *,
        rows: RowSink | None = None,
        watch: Watcher | None = None,
    ) -> None:
        """Play `records`, which come in order of time from `origin` on."""
        self.policy = way.policy()
        gpus = plan.gpus
        self.core = PoolCore(gpus, self.policy, Random(f"core {plan.seed}"))
        self.figures = Figures(rows, plan.warmup_s)
        self.figures.hosts.add(plan.hosts, 0.0)
        self.figures.gpus.add(gpus, 0.0)
        super().__init__(watch)
        self._records, self._origin = iter(records), origin
        self._costs, self._dice = plan.costs, Random(f"pool costs {plan.seed}")
        self._event_queue = EventQueue()
        self._runs: dict[str, PoolRun] = {}

    def run(self) -> Figures:
        """Play to the end, and return the figures."""
        upcoming = next(self._records, None)
        while True:
            head = self._event_queue.head()
            arrival = None if upcoming is None else (upcoming.at - self._origin, ARRIVES)
            timer = self.core.deadline()
            due = min([at for at in (head, arrival) if at is not None], default=None)
            if due is None and not self._runs:
                return self.figures
            if timer is not None and (due is None or (timer, TIMERS) < due):
                self._feed(PoolTime(), timer)
            elif upcoming is not None and arrival is not None and due == arrival:
                self._play(job_in(upcoming), arrival[0])
                upcoming = next(self._records, None)
            else:
                assert due is not None, "jobs wait for nothing"
                self._event_queue.do_next()

    def _play(self, record: Job, now: float) -> None:
        self.played += 1
        task = Task.of_job(record, self.played, now)
        costs, dice = self._costs, self._dice
        wanted = PoolWanted(
            record.job,
            record.width,
            record.duration_s,
            costs.job_load.draw(dice),
            costs.job_pause.draw(dice),
            record.user,
            record.requested_s,
        )
        if record.job in self._runs:
            raise SimulationError(f"job {record.job} is there twice: give each job an id of its own.")
        self._runs[record.job] = PoolRun(task, wanted)
        self._feed(wanted, now)

    def _feed(self, event: PoolEvent, now: float) -> None:
        self.event = event
        self._count(now)
        try:
            effects = self.core.handle(event, now)
        except SchedulerError as error:
            raise SimulationError(str(error)) from error
        for effect in effects:
            self._do(effect, now)

    def _do(self, effect: PoolEffect, now: float) -> None:
        run = self._runs[effect.job]
        if isinstance(effect, LoadJob):
            run.parts.waited_s += run.turn("loading", now)
            if not run.parts.tries:
                run.task.bound = now
            run.parts.tries += 1
            self.figures.committed.add(run.task.gpus, now)
            self._event_queue.post(now + run.wanted.load_s, FREES, self._loaded, (run, run.version))
        elif isinstance(effect, PauseJob):
            self._pause(run, effect.saves, now)
        else:
            del self._runs[effect.job]
            self.figures.given_up(run.task, "refused", effect.why)

    def _pause(self, run: PoolRun, saves: bool, now: float) -> None:
        assert saves == (run.state == "running"), "the core and the machines disagree"
        if not saves:
            took_s = run.turn("waiting", now)
            run.parts.loaded_s += took_s
            run.parts.futile_s += took_s
            self.figures.loaded_in_vain(took_s * run.task.gpus, now)
            self.figures.committed.add(-run.task.gpus, now)
            return
        ran_s = run.turn("pausing", now)
        run.parts.ran_s += ran_s
        run.left_s -= ran_s
        self._event_queue.post(now + run.wanted.pause_s, FREES, self._paused, run)

    def _loaded(self, what: tuple[PoolRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return  # It was stopped while it loaded.
        run.parts.loaded_s += run.turn("running", now)
        if not run.task.started:
            run.task.started = now
        self._event_queue.post(now + max(0.0, run.left_s), FREES, self._over, (run, run.version))
        self._feed(PoolLoaded(run.wanted.job), now)

    def _paused(self, run: PoolRun, now: float) -> None:
        run.parts.paused_s += run.turn("waiting", now)
        self.figures.committed.add(-run.task.gpus, now)
        self._feed(PoolPaused(run.wanted.job), now)

    def _over(self, what: tuple[PoolRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return  # It was stopped while it computed.
        run.parts.ran_s += run.turn("over", now)
        run.task.ended = run.task.done = now
        del self._runs[run.wanted.job]
        self.figures.finished(run.task, now)
        self._feed(PoolOver(run.wanted.job), now)
