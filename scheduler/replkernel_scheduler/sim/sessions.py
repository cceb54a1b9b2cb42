"""Sessions: their cells one after the other, their kernels from beginning to end.

Law: a cell is submitted when the trace says so, or when the one before it is over, if that is later. A
session ends when the trace says so, or when its last cell is over, if that is later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from replkernel_scheduler.effects import KernelPlaced, KernelRefused
from replkernel_scheduler.events import LATE, Event, KernelEnded, KernelReported, KernelStarted
from replkernel_scheduler.sim.costs import CostDice
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.machines import Machines
from replkernel_scheduler.sim.records import Cell, Job, Session
from replkernel_scheduler.sim.replicas import Replicas
from replkernel_scheduler.sim.task import Task
from replkernel_scheduler.sim.tasks import Tasks
from replkernel_scheduler.sim.way import Way
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, UserName


class OpenSession:
    """One that is open; `closing`: the trace says that it is over."""

    __slots__ = (
        "busy",
        "cells",
        "closing",
        "gpus",
        "last_host",
        "name",
        "opened",
        "ready_at",
        "refused",
        "user",
    )

    def __init__(self, name: str, gpus: int, user: str, now: float) -> None:
        """Start without cells."""
        self.name, self.gpus, self.user, self.opened = name, gpus, user, now
        self.cells: deque[Task] = deque()
        self.busy: Task | None = None
        self.closing = False
        self.refused: str | None = None
        self.ready_at = 0.0
        self.last_host: HostName | None = None


class Sessions:
    """All that are open."""

    def __init__(
        self,
        way: Way,
        event_queue: EventQueue,
        feed: Callable[[Event, float], None],
        costs: CostDice,
        replicas: Replicas,
        machines: Machines,
        tasks: Tasks,
        dice: Random,
    ) -> None:
        """Start with none."""
        self._way, self._event_queue, self._feed, self._costs = way, event_queue, feed, costs
        self._replicas, self._machines = replicas, machines
        self._tasks, self._dice = tasks, dice
        self._number = 0
        self.open: dict[str, OpenSession] = {}
        tasks.over, tasks.ready_at = self.over, self.ready_at

    # -- what the trace says ----------------------------------------------------------------------

    def begin(self, session: Session, lasts_s: float, now: float) -> None:
        """Open a session."""
        self._open(session.session, session.gpus, session.user, now)
        self._event_queue.post(now + lasts_s, LATE, self._close, session.session)

    def submit(self, cell: Cell, now: float) -> None:
        """Have a cell run after those of its session that are before it."""
        session = self.open[cell.session]
        self._number += 1
        task = Task(cell.session, self._number, now, cell.duration_s, cell.gpus, user=session.user, job=False)
        task.session, task.milli = cell.session, cell.milli
        session.cells.append(task)
        if session.busy is None:
            self._next(session, now)

    def submit_job(self, job: Job, now: float) -> None:
        """Have a job run by itself, or in a session of its own where GPUs are had for whole sessions only."""
        task = self.task_of(job, now)
        if not self._way.policies.reserve:
            self._tasks.ask(task, now)
            return
        task.name = task.session = f"{job.job}.{task.number}"
        session = self._open(task.name, job.width, job.user, now)
        session.cells.append(task)
        session.closing = True
        self._next(session, now)

    def task_of(self, job: Job, now: float) -> Task:
        """Return a job as it is submitted."""
        self._number += 1
        task = Task.of_job(job, self._number, now)
        task.expected_s = job.requested_s or job.duration_s
        task.milli = 0 if self._way.harvests else job.milli
        return task

    # -- what happens to them ---------------------------------------------------------------------

    def placed(self, effect: KernelPlaced, now: float) -> None:
        """Have the first replicas of a session start."""
        session = self.open[effect.kernel_id]
        if not session.ready_at:
            session.ready_at = now + self._costs.session_start()
            self._tasks.figures.placed(session.opened, now)

    def refused(self, effect: KernelRefused, now: float) -> None:
        """Take note that a session will never be placed."""
        self.open[effect.kernel_id].refused = effect.why

    def ready_at(self, task: Task) -> float:
        """Return when a task's session has replicas that run; its first cell may come before."""
        return 0.0 if task.session is None else self.open[task.session].ready_at

    def over(self, task: Task, now: float) -> None:
        """Go on with a session whose cell is over."""
        session = None if task.session is None else self.open.get(task.session)
        if session is None:
            return
        session.busy, session.last_host = None, task.host or session.last_host
        if session.cells:
            self._next(session, now)
        elif session.closing:
            self._end(session, now)

    def _open(self, name: str, gpus: int, user: str, now: float) -> OpenSession:
        session = self.open[name] = OpenSession(name, gpus, user, now)
        self._asks(gpus, now)
        kernel_id = KernelId(name)
        spec = KernelSpec(kernel_id, UserName(user), gpus, self._way.replicas)
        if self._way.kernels == "placed":
            self._replicas.begin(kernel_id, gpus)
            self._feed(KernelStarted(spec), now)
        elif self._way.kernels == "reported":
            self._replicas.begin(kernel_id, gpus)
            up = self._machines.names()
            hosts = tuple(self._dice.sample(up, min(len(up), self._way.replicas)))
            self._replicas.settle(kernel_id, hosts, now)
            self._feed(KernelReported(spec, hosts), now)
        return session

    def _next(self, session: OpenSession, now: float) -> None:
        task = session.busy = session.cells.popleft()
        task.submitted, task.before = now, session.last_host
        if session.refused is not None:
            self._tasks.refuse(task, session.refused, now)
            return
        self._tasks.ask(task, now)

    def _close(self, name: str, now: float) -> None:
        session = self.open[name]
        session.closing = True
        if session.busy is None:
            self._end(session, now)

    def _end(self, session: OpenSession, now: float) -> None:
        del self.open[session.name]
        self._asks(-session.gpus, now)
        if self._way.kernels == "none":
            return
        kernel_id = KernelId(session.name)
        self._feed(KernelEnded(kernel_id), now)
        self._replicas.end(kernel_id, now)

    def _asks(self, gpus: int, now: float) -> None:
        """Count what open sessions ask for, where that is wanted."""
        idle_time = self._tasks.figures.idle_time
        if idle_time is not None:
            idle_time.add(now, sessions=gpus)
