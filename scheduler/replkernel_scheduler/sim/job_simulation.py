"""The driver of the core of jobs: its clock is the same heap of events as that of the core of leases.

Law: it holds no rule of scheduling. Recorded jobs go to the core as they come; what it starts runs on the
machines of `shared_cores`, and each end goes back to it. Same records, way and plan: same figures.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.events import ARRIVES
from replkernel_scheduler.jobs.core import JobsCore
from replkernel_scheduler.jobs.types import JobEffect, JobEvent, JobOver, JobWanted, NodeShape, StartJob
from replkernel_scheduler.sim.driver import Driver, Watcher, job_in
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.figures import Figures, RowSink
from replkernel_scheduler.sim.job_way import JobWay
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Job, Record
from replkernel_scheduler.sim.shared_cores import SharedCores, SharedRun
from replkernel_scheduler.sim.task import Task
from replkernel_scheduler.types import HostName

INTERACTIVE_QUEUE = "0"
"""The queue of interactive jobs in traces of the Standard Workload Format."""


class JobSimulation(Driver):
    """One run of one trace of jobs in one way."""

    def __init__(
        self,
        records: Iterable[Record],
        origin: float,
        way: JobWay,
        plan: Plan,
        *,
        rows: RowSink | None = None,
        watch: Watcher | None = None,
    ) -> None:
        """Play `records`, which come in order of time from `origin` on."""
        node = NodeShape(plan.gpus_per_host, plan.memory_gb)
        if len({msgspec.structs.replace(alike, count=1) for alike in plan.nodes}) > 1 or plan.speeds:
            raise SimulationError(
                f"--policy {way.name}: its hosts are all equal, and so are their speeds; give --hosts NxG."
            )
        self._across = plan.across_hosts
        self.figures = Figures(rows, plan.warmup_s)
        super().__init__(watch)
        self._records, self._origin = iter(records), origin
        self._event_queue = EventQueue()
        self._machines = SharedCores(plan.hosts, plan.gpus_per_host, self._event_queue, self._ended)
        self.core = JobsCore(plan.hosts, node, way.queues, way.discipline, self._machines)
        self._nodes_before = _nodes_before(self.core)
        self._shared = [line.shared for line in self.core.lines]
        self.figures.shared_cores = any(self._shared)
        self._host_names = [HostName(f"host-{number:04}") for number in range(plan.hosts)]
        self._tasks: dict[str, tuple[Job, Task]] = {}
        self._number = 0

    def run(self) -> Figures:
        """Play to the end, and return the figures."""
        self._begin()
        upcoming = next(self._records, None)
        while True:
            head = self._event_queue.head()
            if upcoming is not None:
                arrival = (upcoming.at - self._origin, ARRIVES)
                if head is None or arrival < head:
                    self._play(job_in(upcoming), arrival[0])
                    upcoming = next(self._records, None)
                    continue
            if head is None:
                return self.figures
            self._count(head[0])
            self._event_queue.do_next()

    def _begin(self) -> None:
        hosts = sum(line.part.nodes for line in self.core.lines)
        self.figures.hosts.add(hosts, 0.0)
        self.figures.gpus.add(hosts * self.core.lines[0].table.cores, 0.0)

    def _play(self, record: Job, now: float) -> None:
        self.played += 1
        self._count(now)
        self._number += 1
        interactive = record.queue == INTERACTIVE_QUEUE
        task = Task.of_job(record, self._number, now)
        task.kind = "interactive" if interactive else "batch"
        if record.job in self._tasks:
            raise SimulationError(f"job {record.job} is there twice: give each job an id of its own.")
        self._tasks[record.job] = (record, task)
        self._feed(
            JobWanted(
                record.job,
                record.width,
                record.requested_s or record.duration_s,
                record.memory_gb,
                interactive,
            ),
            now,
        )

    def _feed(self, event: JobEvent, now: float) -> None:
        self.event = event
        try:
            effects = self.core.handle(event, now)
        except SchedulerError as error:
            raise SimulationError(str(error)) from error
        for effect in effects:
            self._do(effect, now)

    def _do(self, effect: JobEffect, now: float) -> None:
        job, task = self._tasks[effect.job]
        if not isinstance(effect, StartJob):
            del self._tasks[effect.job]
            self.figures.given_up(task, "refused", effect.why)
            return
        before = self._nodes_before[effect.part]
        task.bound = task.started = now
        task.host = self._host_names[before + effect.places[0].node]
        self.figures.bound(task, now)
        if len(effect.places) > 1 and self._across != 1.0:
            job = slower(job, self._across)
        if self._shared[effect.part]:
            self._machines.start(job, effect.places, before, now)
        else:
            self._machines.start_alone(job, now)

    def _ended(self, run: SharedRun, now: float) -> None:
        task = self._tasks.pop(run.job.job)[1]
        task.ended = task.done = now
        self.figures.finished(task, now)
        self._feed(JobOver(run.job.job), now)


def slower(job: Job, times: float) -> Job:
    """Return a job that takes so many times as long; idle phases take what they take."""
    pattern = job.pattern
    if pattern is not None:
        phases = tuple(
            [phase_s if number % 2 else phase_s * times for number, phase_s in enumerate(pattern.phases)]
        )
        pattern = msgspec.structs.replace(pattern, phases=phases)
    return msgspec.structs.replace(job, duration_s=job.duration_s * times, pattern=pattern)


def _nodes_before(core: JobsCore) -> list[int]:
    """Return, for each part, how many nodes those before it have."""
    before = [0]
    for line in core.lines[:-1]:
        before.append(before[-1] + line.part.nodes)
    return before
