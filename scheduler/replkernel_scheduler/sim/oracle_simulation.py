"""The oracle: what nobody can do better. GPUs are there as a cell or job comes, and gone as it ends.

Law: it knows no hosts, no waiting and no costs; cells of a session run one after the other, as in every way.
Money is counted by whole hosts, the fewest that have the GPUs in use; GPU-hours by the GPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from replkernel_scheduler.events import ARRIVES, FREES
from replkernel_scheduler.sim.driver import Driver, Watcher
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.figures import Figures, RowSink
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_scheduler.sim.task import Task
from replkernel_scheduler.types import HostName

NO_HOST = HostName("oracle")


class OracleSimulation(Driver):
    """One run of one trace."""

    def __init__(
        self,
        records: Iterable[Record],
        origin: float,
        plan: Plan,
        *,
        rows: RowSink | None = None,
        watch: Watcher | None = None,
    ) -> None:
        """Play `records`, which come in order of time from `origin` on."""
        self.figures = Figures(rows, plan.warmup_s)
        super().__init__(watch)
        self._records, self._origin = records, origin
        self._gpus_per_host = plan.gpus_per_host
        self._event_queue = EventQueue()
        self._queues: dict[str, deque[Task]] = {}
        """Of each session that has a cell running: the cells that come after it."""
        self._ran: set[str] = set()
        self._users: dict[str, str] = {}

    def run(self) -> Figures:
        """Play to the end, and return the figures."""
        for record in self._records:
            self.played += 1
            if isinstance(record, Session):
                self._users[record.session] = record.user
                continue
            at = record.at - self._origin
            self._event_queue.do_until(at, ARRIVES)
            if isinstance(record, Job):
                task = Task.of_job(record, self.played, at)
                task.milli = record.milli
                self._start(task, at)
            else:
                self._come(record, at)
        self._event_queue.do_all()
        return self.figures

    def _come(self, cell: Cell, now: float) -> None:
        name, user = cell.session, self._users.get(cell.session, "")
        task = Task(name, self.played, now, cell.duration_s, cell.gpus, user=user, job=False)
        task.milli = cell.milli
        if name in self._queues:
            self._queues[name].append(task)
        else:
            self._queues[name] = deque()
            self._start(task, now)

    def _start(self, task: Task, now: float) -> None:
        self._count(now)
        task.submitted = task.bound = task.started = now
        task.host = NO_HOST
        if task.name in self._ran:
            task.before = NO_HOST
        self.figures.bound(task, now)
        self._provide(now)
        self._event_queue.post(now + task.duration_s, FREES, self._end, task)

    def _end(self, task: Task, now: float) -> None:
        self._count(now)
        task.ended = task.done = now
        self.figures.finished(task, now)
        if not task.job:
            self._ran.add(task.name)
            waiting = self._queues[task.name]
            if waiting:
                # After all that ends at this time: GPUs that come free then are used again.
                self._event_queue.post(now, ARRIVES, self._start, waiting.popleft())
            else:
                del self._queues[task.name]
        self._provide(now)

    def _provide(self, now: float) -> None:
        """Have as many GPUs as are in use, and the fewest hosts with as many."""
        figures = self.figures
        gpus = figures.committed.value
        figures.gpus.add(gpus - figures.gpus.value, now)
        figures.hosts.add(-(-gpus // self._gpus_per_host) - figures.hosts.value, now)
