"""What really happened: cells wait, run and end as a live scheduler's journal says they did.

Law: nothing is decided and nothing is drawn; a trace that does not say what happened is refused. The hosts
are those of the plan, for the whole time.
"""

from __future__ import annotations

from collections.abc import Iterable

from replkernel_scheduler.events import ARRIVES, FREES
from replkernel_scheduler.sim.driver import Driver, Watcher
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.figures import Figures, RowSink
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Cell, Record, Session
from replkernel_scheduler.sim.task import Task
from replkernel_scheduler.types import HostName


class RecordedSimulation(Driver):
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
        self.figures.hosts.add(plan.hosts, 0.0)
        self.figures.gpus.add(plan.gpus, 0.0)
        super().__init__(watch)
        self._records, self._origin = records, origin
        self._event_queue = EventQueue()
        self._last_host: dict[str, HostName] = {}
        self._users: dict[str, str] = {}

    def run(self) -> Figures:
        """Play to the end, and return the figures."""
        for record in self._records:
            self.played += 1
            if isinstance(record, Session):
                self._users[record.session] = record.user
                continue
            if not isinstance(record, Cell) or record.seen is None:
                raise SimulationError(
                    "This trace does not say what happened: --policy recorded is for a scheduler's journal."
                )
            at = record.at - self._origin
            self._event_queue.do_until(at, ARRIVES)
            seen, user = record.seen, self._users.get(record.session, "")
            task = Task(record.session, self.played, at, record.duration_s, record.gpus, user=user, job=False)
            task.milli = record.milli
            task.host, task.before = HostName(seen.host), self._last_host.get(task.name)
            self._last_host[task.name] = task.host
            task.bound = task.started = at + seen.queued_s
            task.done = task.bound + seen.leased_s
            task.ended = min(task.done, task.started + record.duration_s)
            self._event_queue.post(task.bound, ARRIVES, self._bind, task)
        self._event_queue.do_all()
        return self.figures

    def _bind(self, task: Task, now: float) -> None:
        self._count(now)
        self.figures.bound(task, now)
        self._event_queue.post(task.done, FREES, self._end, task)

    def _end(self, task: Task, now: float) -> None:
        self._count(now)
        self.figures.finished(task, now)
