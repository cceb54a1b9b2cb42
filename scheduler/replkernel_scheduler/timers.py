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

TimerKind: TypeAlias = Literal["lease", "migration", "reservation", "scaling", "placing", "prewarm"]
TimerKey: TypeAlias = tuple[TimerKind, str]


class Timers:
    """Buckets by second; `_front` is the heap of the next one, and may hold timers set otherwise since."""

    __slots__ = ("_buckets", "_due", "_front", "_front_second", "_listed", "_seconds", "number")

    def __init__(self) -> None:
        """Start with none."""
        self._due: dict[TimerKey, tuple[float, int]] = {}
        self._buckets: dict[int, dict[TimerKey, None]] = {}
        self._seconds: list[int] = []
        self._listed: set[int] = set()
        self._front: list[tuple[float, int, TimerKey]] = []
        self._front_second: int | None = None
        self.number = 0
        """How many were ever set."""

    def set(self, key: TimerKey, at: float) -> None:
        """Let `key` be due at `at` instead of when it was."""
        self.cancel(key)
        self.number += 1
        self._due[key] = (at, self.number)
        second = floor(at)
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = {}
            if second not in self._listed:
                self._listed.add(second)
                heappush(self._seconds, second)
        bucket[key] = None
        if self._front_second is not None:
            if second == self._front_second:
                heappush(self._front, (at, self.number, key))
            elif second < self._front_second:
                self._front_second = None

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`."""
        before = self._due.pop(key, None)
        if before is not None:
            second = floor(before[0])
            bucket = self._buckets[second]
            del bucket[key]
            if not bucket:
                del self._buckets[second]

    def next_at(self) -> float | None:
        """Return when the next one is due."""
        while self._front_second is not None or self._turn_to_next_second():
            front, due = self._front, self._due
            while front:
                at, number, key = front[0]
                if due.get(key) == (at, number):
                    return at
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
        return list(self._due.items())

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
        self._front = [(*self._due[key], key) for key in buckets[seconds[0]]]
        heapify(self._front)
        return True
