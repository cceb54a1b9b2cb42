"""What GPUs draw: watts by model while somebody holds them, and while nobody does.

Law: where the watts of a host's GPUs are unknown nothing is said of any. It is of GPUs alone: no processors,
memory, fans. A held GPU counts as busy all the time, and a part of one as that part of the difference.

WATTS: busy is what the maker states as the most that the board takes, so it is an upper bound. Both numbers
are as Lettich et al. use them for Alibaba's cluster ("Power- and Fragmentation-aware Online Scheduling for
GPU Datacenters", 2024, and the simulator with it). For other models the list of hosts says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from replkernel_scheduler.sim.level import Level
from replkernel_scheduler.sim.task import Task
from replkernel_scheduler.types import HostName

WATTS: Mapping[str, tuple[float, float]] = {
    "T4": (70.0, 10.0),
    "A10": (150.0, 30.0),
    "P100": (250.0, 30.0),
    "V100": (300.0, 30.0),
    "V100M16": (300.0, 30.0),
    "V100M32": (300.0, 30.0),
    "A100": (400.0, 50.0),
}
"""Busy and idle, by model; V100M16 and V100M32 are Alibaba's names."""


class Draw(Protocol):
    """A host, as far as it draws power."""

    @property
    def gpus(self) -> int:
        """Return how many GPUs it has."""
        ...

    @property
    def gpu_busy_w(self) -> float:
        """Return what one of them draws while it is held; 0 if nobody knows."""
        ...

    @property
    def gpu_idle_w(self) -> float:
        """Return what one of them draws while it is not."""
        ...


class Draws:
    """The watts of all GPUs of hosts that differ, over time."""

    def __init__(self, watts: Level) -> None:
        """Start without hosts; `watts` is at 0."""
        self.watts = watts
        self._more_w: dict[HostName, float] = {}

    def host_up(self, name: HostName, shape: Draw, now: float) -> None:
        """Have a host's GPUs draw what idle ones draw."""
        self._more_w[name] = shape.gpu_busy_w - shape.gpu_idle_w
        self.watts.add(shape.gpus * shape.gpu_idle_w, now)

    def host_down(self, name: HostName, shape: Draw, now: float) -> None:
        """Have them draw nothing; whoever held them gives them back by himself."""
        self.watts.add(-shape.gpus * shape.gpu_idle_w, now)

    def take(self, task: Task, now: float) -> None:
        """Have a task's GPUs be busy."""
        if task.host is not None:
            self.watts.add(task.amount * self._more_w[task.host], now)

    def give(self, task: Task, now: float) -> None:
        """Have them be idle again."""
        if task.host is not None:
            self.watts.add(-task.amount * self._more_w[task.host], now)
