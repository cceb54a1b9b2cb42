"""Cells and jobs before the core: they ask, are bound to GPUs, run, give back, and ask again if a host took
their run along.

Law: a task has at most one request before the core. Whoever loses its run begins anew, TRIES_MAX times
at most.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, LeaseQueued, LeaseRefused, ReclaimLease
from replkernel_scheduler.events import (
    ARRIVES,
    FREES,
    Event,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
)
from replkernel_scheduler.sim.costs import CostDice
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.task import Outcome, Task
from replkernel_scheduler.sim.way import Way
from replkernel_scheduler.types import HostName, KernelId, Lease, LeaseRequest, RequestId, Share, UserName
from replkernel_scheduler.wishes import TTL_S_MAX

LEASE_S = TTL_S_MAX
RENEW_S = LEASE_S / 2
TRIES_MAX = 10


class Tasks:
    """All that are not over; `over` is told of each that is, `ready_at` when a session's replicas run."""

    over: Callable[[Task, float], None]
    ready_at: Callable[[Task], float]

    def __init__(
        self,
        way: Way,
        event_queue: EventQueue,
        feed: Callable[[Event, float], None],
        costs: CostDice,
        figures: Figures,
        wants: Callable[[LeaseRequest, Job], LeaseRequest] | None = None,
        takes_s: Callable[[Task, HostName], float] | None = None,
    ) -> None:
        """Start with none.

        `wants` adds what a job wants of its host where hosts differ; `takes_s` says how long a task runs on
        a host where models differ.
        """
        self._wants, self._takes_s = wants, takes_s
        self._way, self._event_queue, self._feed = way, event_queue, feed
        self._costs, self.figures = costs, figures
        self._asked: dict[RequestId, Task] = {}
        self.open = 0
        self.running = 0

    def ask(self, task: Task, now: float) -> None:
        """Have a task ask for its GPUs."""
        if not task.tries:
            self.open += 1
        request = RequestId(f"{task.name}.{task.number}.{task.tries}")
        self._asked[request] = task
        kernel_id = KernelId(task.name if task.session is not None else request)
        user = UserName(task.user)
        if not self._way.parts:
            task.milli = 0
        share = Share(task.milli) if task.milli else UNSET
        wish = LeaseRequest(
            request, kernel_id, task.gpus, LEASE_S, user=user, expected_s=task.expected_s, share=share
        )
        if self._wants is not None and task.asked is not None:
            wish = self._wants(wish, task.asked)
        self._feed(LeaseAsked(wish), now)

    def granted(self, effect: LeaseGranted, now: float) -> None:
        """Let a task run on the GPUs it got; a lease that is merely renewed changes nothing."""
        lease = effect.lease
        task = self._asked.get(lease.request)
        if task is None or task.lease is not None:
            return
        if self._way.bare:
            self._run(task, lease, now, now, 0.0)
            return
        own_process = task.session is None or self._way.kernels == "none"
        ready = now + self._costs.start(warm=effect.prewarmed) if own_process else self.ready_at(task)
        reads_s = self._costs.read() if self._way.reads else 0.0
        writes_s = self._costs.write() if self._way.reads else 0.0
        starts = max(now, ready) + reads_s + self._costs.load()
        self._run(task, lease, now, starts, writes_s + self._costs.unload())

    def _run(self, task: Task, lease: Lease, now: float, starts: float, saves_s: float) -> None:
        """Let a task's code run from `starts`; it holds its GPUs from now until all is saved."""
        task.lease, task.host, task.bound = lease, lease.host, now
        takes_s = task.duration_s if self._takes_s is None else self._takes_s(task, lease.host)
        task.started, task.ended = starts, starts + takes_s
        task.done = task.ended + saves_s
        self.running += 1
        self.figures.bound(task, now)
        self._event_queue.post(task.done, FREES, self._finish, (task, task.tries))
        if task.done - now > RENEW_S:
            self._event_queue.post(now + RENEW_S, ARRIVES, self._renew, (task, task.tries))

    def queued(self, effect: LeaseQueued, now: float) -> None:
        """Take note of a task whose replica moves to where its GPUs are."""
        if effect.position == 0:
            task = self._asked.get(effect.request)
            if task is not None:
                task.moved = True

    def refused(self, effect: LeaseRefused, now: float) -> None:
        """Give a task up that will never be served."""
        task = self._asked.pop(effect.request, None)
        if task is not None:
            self.figures.given_up(task, "refused", effect.why)
            self._event_queue.post(now, ARRIVES, self._close, task)

    def refuse(self, task: Task, why: str, now: float) -> None:
        """Give a task up that cannot even ask."""
        self.open += 1
        self.figures.given_up(task, "refused", why)
        self._event_queue.post(now, ARRIVES, self._close, task)

    def ended(self, effect: LeaseEnded, now: float) -> None:
        """Have a task ask again whose run was lost."""
        task = self._asked.get(effect.lease.request)
        if task is None or task.lease is None or task.lease.lease != effect.lease.lease:
            return
        del self._asked[effect.lease.request]
        self.running -= 1
        self.figures.lost(task, now)
        task.lease = None
        task.tries += 1
        if task.tries < TRIES_MAX:
            self._event_queue.post(now, ARRIVES, self.ask, task)
        else:
            self.figures.given_up(task, "failed", f"its run was lost {TRIES_MAX} times ({effect.why})")
            self._event_queue.post(now, ARRIVES, self._close, task)

    def reclaimed(self, effect: ReclaimLease, now: float) -> None:
        """Give lingering GPUs back, once the state is off them."""
        self._event_queue.post(now + self._costs.give_back(), FREES, self._give_back, effect.lease)

    def give_up(self) -> None:
        """Count what still waits at the end of a run."""
        outcome: Outcome = "unserved"
        for task in self._asked.values():
            if task.lease is None:
                self.figures.given_up(task, outcome, "it still waited when nothing else could happen")

    def _finish(self, about: tuple[Task, int], now: float) -> None:
        task, tries = about
        lease = task.lease
        if lease is None or task.tries != tries:
            return
        del self._asked[lease.request]
        self.running -= 1
        self.figures.finished(task, now)
        busy_s = task.ended - task.started
        if self._way.lingers and not task.job:
            self._feed(LeaseLingered(lease.lease, lease.fence, busy_s), now)
        else:
            self._feed(LeaseReleased(lease.lease, lease.fence, busy_s), now)
        if task.session is None:
            self._close(task, now)  # Nothing follows it that would have to wait for its turn.
        else:
            self._event_queue.post(now, ARRIVES, self._close, task)

    def _close(self, task: Task, now: float) -> None:
        self.open -= 1
        self.over(task, now)

    def _renew(self, about: tuple[Task, int], now: float) -> None:
        task, tries = about
        lease = task.lease
        if lease is not None and task.tries == tries and now < task.done:
            self._feed(LeaseRenewed(lease.lease, lease.fence), now)
            self._event_queue.post(now + RENEW_S, ARRIVES, self._renew, about)

    def _give_back(self, lease: Lease, now: float) -> None:
        self._feed(LeaseReleased(lease.lease, lease.fence), now)
