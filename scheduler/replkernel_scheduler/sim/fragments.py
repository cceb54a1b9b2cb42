"""How much of what is idle is of no use: GPUs of hosts where too few are left together (FGD, ATC 2023).

For a task of the trace, drawn at random, idle GPUs are useless on a host that cannot take it: fewer whole
ones than it wants, or for a part of one no card with as much left. Law: it is of GPUs alone; models,
processors and memory are not looked at. A task that no host could ever take does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from replkernel_scheduler.sim.level import Level
from replkernel_scheduler.sim.nodes import MILLI, Hosts
from replkernel_scheduler.sim.task import Task
from replkernel_scheduler.types import GpuUuid, HostName

Sizes: TypeAlias = Mapping[tuple[int, int], int]
"""How many tasks want so many GPUs, or so many thousandths of one (0: all of it)."""


def whole_ones(sizes: Sizes) -> Sizes:
    """Return sizes where whoever wants a part gets a whole GPU."""
    found: Counter[tuple[int, int]] = Counter()
    for (gpus, _), count in sizes.items():
        found[gpus, 0] += count
    return found


class Left:
    """What is idle on a host: whole GPUs, and thousandths of cards that have parts."""

    __slots__ = ("parts", "whole")

    def __init__(self, whole: int) -> None:
        """Start with all."""
        self.whole = whole
        self.parts: dict[GpuUuid, int] = {}


class Fragments:
    """The hosts of a run, and the integrals of what is idle and of what of it is useless.

    Both are kept in whole numbers, so they stay exact: thousandths of GPUs, and these times tasks.
    """

    def __init__(self, sizes: Sizes, widest: int, idle: Level, useless: Level) -> None:
        """Start without hosts; the largest will have `widest` GPUs."""
        fits = {size: count for size, count in sizes.items() if 0 < size[0] <= widest}
        self._tasks = sum(fits.values())
        self._wanted = [(milli or gpus * MILLI, count) for (gpus, milli), count in fits.items()]
        self._idle, self._useless = idle, useless
        self._left: dict[HostName, Left] = {}
        self._known: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}

    def share(self, now: float) -> float | None:
        """Return the share of what was idle until `now` that was useless; None if nothing ever was idle."""
        idle = self._idle.until(now) * self._tasks
        return self._useless.until(now) / idle if idle else None

    def host_up(self, name: HostName, shape: Hosts, now: float) -> None:
        """Have a host's GPUs be idle."""
        left = self._left[name] = Left(shape.gpus)
        self._count((0, 0), self._known_of(left), now)

    def host_down(self, name: HostName, shape: Hosts, now: float) -> None:
        """Have none of them be there."""
        self._count(self._known_of(self._left.pop(name)), (0, 0), now)

    def take(self, task: Task, now: float) -> None:
        """Have a task's GPUs not be idle."""
        self._change(task, 1, now)

    def give(self, task: Task, now: float) -> None:
        """Have them be idle again, if their host is there."""
        self._change(task, -1, now)

    def _change(self, task: Task, sign: int, now: float) -> None:
        if task.host is None or task.lease is None or (left := self._left.get(task.host)) is None:
            return
        before = self._known_of(left)
        if task.milli:
            card = task.lease.gpus[0]
            if card not in left.parts:
                left.whole -= 1
                left.parts[card] = MILLI
            left.parts[card] -= sign * task.milli
            if left.parts[card] == MILLI:
                del left.parts[card]
                left.whole += 1
        else:
            left.whole -= sign * len(task.lease.gpus)
        self._count(before, self._known_of(left), now)

    def _count(self, before: tuple[int, int], after: tuple[int, int], now: float) -> None:
        self._idle.add(after[0] - before[0], now)
        self._useless.add(after[1] - before[1], now)

    def _known_of(self, left: Left) -> tuple[int, int]:
        parts = tuple(sorted(left.parts.values())) if left.parts else ()
        key = (left.whole, parts)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._of(left.whole, parts)
        return found

    def _of(self, whole: int, parts: tuple[int, ...]) -> tuple[int, int]:
        """Return what is idle on a host, and the sum over all tasks of what is useless to them."""
        useless = 0
        for milli, count in self._wanted:
            if milli < MILLI:
                useless += count * sum([left for left in parts if left < milli])
            else:
                useless += count * (sum(parts) + (whole * MILLI if whole * MILLI < milli else 0))
        return whole * MILLI + sum(parts), useless
