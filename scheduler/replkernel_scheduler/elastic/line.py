"""Who waits to be launched, in order of arrival, with one lane for each set of sizes.

Law: time makes no room. So where a job was tried in vain, those with its sizes are passed by until something
changes, and an event costs as much as there are sets of sizes, however many jobs wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TypeAlias

from replkernel_scheduler.elastic.types import TrainingWanted

Sizes: TypeAlias = tuple[object, ...]
Place: TypeAlias = tuple[int, Sizes]
"""A number of arrival, and the lane."""


class Line:
    """Jobs that wait."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._place_of: dict[str, Place] = {}
        self._lanes: dict[Sizes, list[int]] = {}
        self._wanted: dict[int, TrainingWanted] = {}
        self._leasts: Counter[int] = Counter()
        self._in_vain: dict[Sizes, int] = {}
        """After which change those with these sizes were tried in vain."""
        self._changes = 0
        self._numbers = count()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._wanted)

    def __contains__(self, job: object) -> bool:
        """Say whether a job waits."""
        return job in self._place_of

    def join(self, wanted: TrainingWanted) -> None:
        """Have a job wait, behind those that do."""
        number, sizes = next(self._numbers), wanted.sizes
        self._place_of[wanted.job] = number, sizes
        self._wanted[number] = wanted
        self._lanes.setdefault(sizes, []).append(number)
        self._leasts[wanted.type.least] += 1

    def leave(self, job: str) -> None:
        """Have it wait no more."""
        number, sizes = self._place_of.pop(job)
        lane = self._lanes[sizes]
        del lane[bisect_left(lane, number)]
        if not lane:
            del self._lanes[sizes]
        self._leasts[self._wanted.pop(number).type.least] -= 1

    def least(self) -> int:
        """Return the fewest GPUs that one of them runs with; 0: nobody waits."""
        return min((least for least, waiting in self._leasts.items() if waiting), default=0)

    def changed(self) -> int:
        """Take note that there may be room for everybody again; return which change this is."""
        self._changes += 1
        return self._changes

    def in_vain(self, wanted: TrainingWanted) -> None:
        """Take note that no host has room for such a job, idle or another job's."""
        self._in_vain[self._sizes(wanted)] = self._changes

    def tried(self, wanted: TrainingWanted) -> int | None:
        """Return after which change such a job was tried in vain last; None: never."""
        return self._in_vain.get(self._sizes(wanted))

    def _sizes(self, wanted: TrainingWanted) -> Sizes:
        place = self._place_of.get(wanted.job)
        return wanted.sizes if place is None else place[1]

    def in_order(self) -> Iterator[TrainingWanted]:
        """Yield who waits, but those whose like was tried in vain; they may leave while it goes on."""
        heads = [(lane[0], sizes) for sizes, lane in self._lanes.items()]
        heads.sort(key=lambda head: head[0])
        passed: list[Sizes] = []
        last, changes = -1, self._changes
        while True:
            if changes != self._changes:
                changes = self._changes
                for sizes in passed:
                    self._push(heads, sizes, last)
                passed.clear()
            if not heads:
                return
            number, sizes = heads[0]
            if self._in_vain.get(sizes) == changes:
                passed.append(heappop(heads)[1])
                continue
            last = number
            yield self._wanted[number]
            lane = self._lanes.get(sizes, [])
            at = bisect_right(lane, number)
            if at < len(lane):
                heapreplace(heads, (lane[at], sizes))
            else:
                heappop(heads)

    def _push(self, heads: list[Place], sizes: Sizes, last: int) -> None:
        lane = self._lanes.get(sizes, [])
        at = bisect_right(lane, last)
        if at < len(lane):
            heappush(heads, (lane[at], sizes))
