"""When which object is due: one time each.

Law: an object has at most one timer; of two that are due at once the one that was set first goes first.
Timers lie in buckets of a second, of which only the next one is sorted: setting and cancelling cost the
same however many there are, and nothing is left behind of a timer that was cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import floor
from typing import Literal, TypeAlias

TimerKind: TypeAlias = Literal["lease", "migration", "reservation", "scaling", "placing", "prewarm", "late"]
TimerKey: TypeAlias = tuple[TimerKind, str]


Due: TypeAlias = tuple[float, int, TimerKey]
"""When, the number that it was set with, and what."""


class Timers:
    """Buckets by second; `_front` is the heap of the next one, and may hold timers set otherwise since."""

    __slots__ = ("_buckets", "_due", "_front", "_front_second", "_listed", "_seconds", "number")

    def __init__(self) -> None:
        """Start with none."""
        self._due: dict[TimerKey, Due] = {}
        self._buckets: dict[int, dict[TimerKey, None]] = {}
        self._seconds: list[int] = []
        self._listed: set[int] = set()
        self._front: list[Due] = []
        self._front_second: int | None = None
        self.number = 0
        """How many were ever set."""

    def set(self, key: TimerKey, at: float) -> None:
        """Let `key` be due at `at` instead of when it was."""
        if key in self._due:
            self.cancel(key)
        self.number += 1
        due = self._due[key] = (at, self.number, key)
        second = floor(at)
        bucket = self._buckets.get(second)
        if bucket is None:
            self._buckets[second] = {key: None}
            if second not in self._listed:
                self._listed.add(second)
                heappush(self._seconds, second)
        else:
            bucket[key] = None
        front = self._front_second
        if front is not None:
            if second == front:
                heappush(self._front, due)
            elif second < front:
                self._front_second = None

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`."""
        before = self._due.pop(key, None)
        if before is not None:
            second = floor(before[0])
            bucket = self._buckets[second]
            if len(bucket) == 1:
                del self._buckets[second]
            else:
                del bucket[key]

    def next_at(self) -> float | None:
        """Return when the next one is due."""
        front, due = self._front, self._due
        if self._front_second is not None and front and due.get(front[0][2]) is front[0]:
            return front[0][0]
        while self._front_second is not None or self._turn_to_next_second():
            front = self._front
            while front:
                if due.get(front[0][2]) is front[0]:
                    return front[0][0]
                heappop(front)
            self._front_second = None
        return None

    def pop(self) -> TimerKey:
        """Take the next one, which `next_at()` has named."""
        _, _, key = heappop(self._front)
        self.cancel(key)
        return key

    def at(self, key: TimerKey) -> float | None:
        """Return when `key` is due."""
        found = self._due.get(key)
        return None if found is None else found[0]

    def all(self) -> list[tuple[TimerKey, tuple[float, int]]]:
        """Return every timer: when it is due, and the number that it was set with."""
        return [(key, (at, number)) for key, (at, number, _) in self._due.items()]

    def restore(self, timers: Iterable[tuple[TimerKey, float, int]], number: int) -> None:
        """Have these timers, of which there were none before; `number` were ever set."""
        for key, at, own in timers:
            self.number = own - 1
            self.set(key, at)
        self.number = number

    def _turn_to_next_second(self) -> bool:
        """Sort the first bucket that has timers; say whether there is one."""
        seconds, buckets = self._seconds, self._buckets
        while seconds and seconds[0] not in buckets:
            self._listed.discard(heappop(seconds))
        if not seconds:
            return False
        self._front_second = seconds[0]
        self._front = [self._due[key] for key in buckets[seconds[0]]]
        heapify(self._front)
        return True
