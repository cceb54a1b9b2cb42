"""The driver: the scheduler's core under a clock that jumps from event to event.

It hands recorded sessions, cells and jobs to the core as events, answers its effects after the times
that the costs say, and has the figures counted. Law: it holds no rule of the scheduler, and no clock but
the event queue; of what is due at one time it goes first what frees, then hosts, timers, arrivals (spec 0.1).
Same records, way and plan: same effects, same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Protocol

from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import (
    CancelHost,
    HostRefused,
    KernelPlaced,
    KernelRefused,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    MigrationFailed,
    Prewarm,
    ProvisionHost,
    ReclaimLease,
    ReleaseHost,
    StartReplica,
    StopReplica,
)
from replkernel_scheduler.events import ARRIVES, TIMERS, TimeReached
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.types import HarvestEffect, HarvestEvent
from replkernel_scheduler.sim.costs import CostDice
from replkernel_scheduler.sim.demands import Demands
from replkernel_scheduler.sim.driver import Driver, Watcher
from replkernel_scheduler.sim.elastic_way import elastic_way_named
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.faults import Faults
from replkernel_scheduler.sim.figures import Figures, RowSink
from replkernel_scheduler.sim.fragments import Fragments, Sizes, whole_ones
from replkernel_scheduler.sim.harvest import Harvest
from replkernel_scheduler.sim.idle_time import IdleTime
from replkernel_scheduler.sim.machines import Machines
from replkernel_scheduler.sim.plan import Plan, settings_for
from replkernel_scheduler.sim.power import Draws
from replkernel_scheduler.sim.records import Cell, Job, Record
from replkernel_scheduler.sim.replicas import Replicas
from replkernel_scheduler.sim.sessions import Sessions
from replkernel_scheduler.sim.tasks import Tasks
from replkernel_scheduler.sim.way import Way

STALL_S = 7 * 86_400.0
"""When nothing but timers has happened for so long and no records come, the rest is never served."""


class Core(Protocol):
    """What the driver knows of the core; the one with jobs beside kernels takes and says more."""

    def handle(self, event: Any, now: float) -> Sequence[HarvestEffect]:
        """Take one event that happened at `now` and return what follows from it."""
        ...

    def deadline(self) -> float | None:
        """Return when the next timer is due."""
        ...


def core_for(way: Way, plan: Plan) -> SchedulerCore:
    """Return the core of a run, as a live driver would make it."""
    return SchedulerCore(Random(f"core {plan.seed}"), way.policies, settings_for(plan, way))


class Simulation(Driver):
    """One run of one trace in one way."""

    def __init__(
        self,
        records: Iterable[Record],
        origin: float,
        way: Way,
        plan: Plan,
        *,
        core: Core | None = None,
        sizes: Sizes | None = None,
        rows: RowSink | None = None,
        watch: Watcher | None = None,
    ) -> None:
        """Play `records`, which come in order of time from `origin` on.

        With the `sizes` of what is in them it is counted how much of what is idle is of use.
        """
        made = core_for(way, plan) if core is None else core
        self.core: Core = made
        self.figures = Figures(rows, plan.warmup_s)
        super().__init__(watch)
        if not way.harvests:
            self._watch_hosts(way, plan, sizes)
        self._records, self._origin = iter(records), origin
        self._event_queue = event_queue = EventQueue()
        costs, faults = CostDice(plan.costs, plan.seed), Faults(plan.faults, plan.seed)
        self._replicas = Replicas(
            event_queue, self._feed, costs, faults, self.figures, reserve=way.policies.reserve
        )
        self._machines = Machines(plan, event_queue, self._feed, costs, faults, self.figures, self._replicas)
        demands = Demands(plan, self._machines)
        self._tasks = Tasks(
            way, event_queue, self._feed, costs, self.figures, demands.wish(), demands.takes_s()
        )
        self._sessions = Sessions(
            way, event_queue, self._feed, costs, self._replicas, self._machines, self._tasks,
            Random(f"places {plan.seed}"),
        )  # fmt: skip
        self._harvest: Harvest | None = None
        if way.harvests:
            assert isinstance(made, SchedulerCore | HarvestCore)
            self.core = beside = HarvestCore(made) if isinstance(made, SchedulerCore) else made
            jobs = elastic_way_named("sidecar")
            self.figures.idle_time = IdleTime(plan.warmup_s)
            self._harvest = Harvest(
                beside, event_queue, self._feed, self.figures, jobs, plan.gpus_per_host, plan.nodes
            )
        self._answers = self._table() | ({} if self._harvest is None else self._harvest.answers())
        self._plays_jobs = way.jobs
        self._upcoming: Record | None = None
        self._moved_at = 0.0

    def _watch_hosts(self, way: Way, plan: Plan, sizes: Sizes | None) -> None:
        """Have the figures look at each host, where that tells more than sums."""
        figures = self.figures
        if len(plan.watts) > 1:
            figures.draws = Draws(figures.level())
        if sizes and any(gpus for gpus, _ in sizes) and not way.policies.reserve:
            wanted = sizes if way.parts else whole_ones(sizes)
            idle, useless = figures.level(course=False), figures.level(course=False)
            figures.fragments = Fragments(wanted, plan.gpus_per_host, idle, useless)

    def run(self) -> Figures:
        """Play to the end, and return the figures."""
        self._upcoming = next(self._records, None)
        while (due := self._due()) is not None:
            timer = self.core.deadline()
            if timer is not None and timer <= due[0] and (timer, TIMERS) < due:
                if self._stalled(timer):
                    break
                self._feed(TimeReached(), timer)
                continue
            self._moved_at = due[0]
            if self._upcoming is not None and due == (self._upcoming.at - self._origin, ARRIVES):
                self._play(self._upcoming, due[0])
            else:
                self._event_queue.do_next()
        self._tasks.give_up()
        return self.figures

    def _due(self) -> tuple[float, int] | None:
        """Return time and turn of what is next, timers apart; None at the end.

        What is in the queue came before in the order of turns, so at one time it goes before a record.
        """
        record, head = self._upcoming, self._event_queue.head()
        if record is not None:
            at = record.at - self._origin
            if head is None or at < head[0]:
                return (at, ARRIVES)
            return head if head[0] < at else min((at, ARRIVES), head)
        if not self._tasks.open and not self._sessions.open and not (self._harvest and self._harvest.open):
            return None
        return head or (float("inf"), ARRIVES)

    def _stalled(self, timer: float) -> bool:
        if self._upcoming is not None or self._tasks.running:
            return False
        return timer - self._moved_at > STALL_S

    def _play(self, record: Record, now: float) -> None:
        self.played += 1
        self._upcoming = next(self._records, None)
        if isinstance(record, Job) and not self._plays_jobs:
            return
        if isinstance(record, Job) and self._harvest is not None:
            self._harvest.submit(record, self._sessions.task_of(record, now), now)
        elif isinstance(record, Job):
            self._sessions.submit_job(record, now)
        elif isinstance(record, Cell):
            self._sessions.submit(record, now)
        else:
            self._sessions.begin(record, record.ends - record.at, now)

    def _feed(self, event: HarvestEvent, now: float) -> None:
        """Hand one event to the core, and see to what follows."""
        self.event = event
        self._count(now)
        for effect in self.core.handle(event, now):
            answer = self._answers.get(type(effect))
            if answer is not None:
                answer(effect, now)
        if self._harvest is not None:
            self._harvest.arm()

    def _table(self) -> dict[type[Any], Callable[[Any, float], None]]:
        """Say who answers which effect; the others are for people."""
        return {
            LeaseGranted: self._tasks.granted,
            LeaseQueued: self._tasks.queued,
            LeaseRefused: self._tasks.refused,
            LeaseEnded: self._tasks.ended,
            ReclaimLease: self._tasks.reclaimed,
            KernelPlaced: self._placed,
            KernelRefused: self._sessions.refused,
            StartReplica: self._replicas.start,
            StopReplica: self._replicas.stop,
            MigrationFailed: self._replicas.failed,
            Prewarm: self._machines.prewarm,
            ProvisionHost: self._machines.provision,
            CancelHost: self._machines.cancel,
            ReleaseHost: self._machines.release,
            HostRefused: self._machines.refused,
        }

    def _placed(self, effect: KernelPlaced, now: float) -> None:
        self._replicas.placed(effect, now)
        self._sessions.placed(effect, now)
