"""What jobs want of hosts that differ, and how long they take there: models, processors, memory, speeds.

Law: where hosts are all equal and no speeds are named nothing is asked, so such runs are as they always were.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from replkernel_scheduler.sim.machines import Machines
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.speeds import SpeedTable
from replkernel_scheduler.sim.task import Task
from replkernel_scheduler.types import HostName, LeaseRequest


class Demands:
    """The hosts of a run, by model."""

    def __init__(self, plan: Plan, machines: Machines) -> None:
        """Look at the hosts of the beginning."""
        self._plan, self._machines = plan, machines
        self._speeds = SpeedTable(plan.speeds)
        self._counts = plan.counts("cpus"), plan.counts("memory_gb")
        self._hosts: dict[tuple[str, ...], tuple[HostName, ...]] = {}

    def wish(self) -> Callable[[LeaseRequest, Job], LeaseRequest] | None:
        """Return what adds a job's demands to its request; None where hosts are all equal."""
        return self._with_demands if self._plan.nodes else None

    def takes_s(self) -> Callable[[Task, HostName], float] | None:
        """Return what says how long a task runs on a host; None where no speeds are named."""
        return self._on_host if self._plan.speeds else None

    def _with_demands(self, wish: LeaseRequest, job: Job) -> LeaseRequest:
        cpus, memory = self._counts
        model = job.gpu_models[0] if len(job.gpu_models) == 1 else ""
        return msgspec.structs.replace(
            wish,
            gpu_model=model,
            hosts=self._of(job.gpu_models) if len(job.gpu_models) > 1 else (),
            cpu=job.cpus if cpus else 0.0,
            memory_gb=job.host_memory_gb if memory else 0.0,
        )

    def _of(self, models: tuple[str, ...]) -> tuple[HostName, ...]:
        """Return the hosts with any of these models; who finds none names one that nobody has."""
        if models not in self._hosts:
            found = [name for name, shape in self._machines.shapes.items() if shape.gpu_model in models]
            self._hosts[models] = tuple(found) or (HostName("|".join(models)),)
        return self._hosts[models]

    def _on_host(self, task: Task, host: HostName) -> float:
        kind = "" if task.asked is None else task.asked.kind
        return task.duration_s / self._speeds.of(kind, self._machines.shape(host).gpu_model)
