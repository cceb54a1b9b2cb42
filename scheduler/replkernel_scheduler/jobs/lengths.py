"""Jobs that wait for the same thing, in order of arrival, with the time that each has asked for.

Law: who is the first behind a number that asked for no more than some time is found in O(log n), however many
wait. It is a tree of minima over the order of arrival; those that left are longer than any.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from replkernel_scheduler.jobs.types import JobWanted

ANY_S = 1e300
"""Longer than any job."""
GONE = float("inf")
LEAVES_MIN = 8


class Lengths:
    """The jobs of one shape."""

    __slots__ = ("_least", "_leaves", "_numbers", "_wanted", "count")

    def __init__(self) -> None:
        """Start with none."""
        self._numbers: list[int] = []
        self._wanted: list[JobWanted] = []
        self._leaves = LEAVES_MIN
        self._least = [GONE] * (2 * LEAVES_MIN)
        self.count = 0

    def add(self, number: int, wanted: JobWanted) -> None:
        """Put a job behind all others; its number is larger than theirs."""
        if len(self._numbers) == self._leaves:
            self._rebuild()
        self._numbers.append(number)
        self._wanted.append(wanted)
        self.count += 1
        self._set(len(self._numbers) - 1, wanted.requested_s)

    def remove(self, number: int) -> None:
        """Take a job out."""
        self.count -= 1
        self._set(bisect_left(self._numbers, number), GONE)

    def first(self, after: int, limit_s: float = ANY_S) -> tuple[int, JobWanted] | None:
        """Return the first job behind a number that asked for `limit_s` at most."""
        least, leaves = self._least, self._leaves
        at = bisect_right(self._numbers, after) + leaves
        if at == 2 * leaves:
            return None
        while least[at] > limit_s:
            if not at & (at + 1):
                return None  # It was the last of its level.
            at += 1
            while not at & 1:
                at >>= 1
        while at < leaves:
            at *= 2
            at += least[at] > limit_s
        return self._numbers[at - leaves], self._wanted[at - leaves]

    def _set(self, place: int, length_s: float) -> None:
        least, at = self._least, place + self._leaves
        least[at] = length_s
        while at > 1:
            at >>= 1
            smaller = min(least[2 * at], least[2 * at + 1])
            if least[at] == smaller:
                return
            least[at] = smaller

    def _rebuild(self) -> None:
        """Forget those that left; have room for as many again."""
        leaves = self._leaves
        alive = [place for place in range(len(self._numbers)) if self._least[leaves + place] != GONE]
        self._numbers = [self._numbers[place] for place in alive]
        self._wanted = [self._wanted[place] for place in alive]
        self._leaves = LEAVES_MIN
        while self._leaves < 2 * len(alive):
            self._leaves *= 2
        lengths = [wanted.requested_s for wanted in self._wanted]
        least = [GONE] * self._leaves + lengths + [GONE] * (self._leaves - len(lengths))
        for at in range(self._leaves - 1, 0, -1):
            least[at] = min(least[2 * at], least[2 * at + 1])
        self._least = least
