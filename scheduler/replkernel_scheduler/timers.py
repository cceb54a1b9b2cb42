"""When which object is due: one time each.

Law: an object has at most one timer; of two that are due at once the one that was set first goes first.
Timers lie in buckets of a second, of which only those are sorted that were the next one: setting and
cancelling cost the same however many there are, and little is left behind of timers that were cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import floor
from typing import Literal, TypeAlias

TimerKind: TypeAlias = Literal[
    "lease",
    "migration",
    "reservation",
    "scaling",
    "placing",
    "prewarm",
    "late",
    "booking",
    "deferral",
    "pausing",
]
TimerKey: TypeAlias = tuple[TimerKind, str]


OVER_MAX = 64
"""A heap with more that was cancelled than this, and than is left, is made anew."""
Due: TypeAlias = tuple[float, int, TimerKey]
"""When, the number that it was set with, and what."""


class Timers:
    """Buckets by second; `_front` is the heap of the next one, and may hold timers set otherwise since.

    The heaps of those that were the next one are kept: timers of the near future come and go all the time.
    """

    __slots__ = ("_buckets", "_due", "_front", "_front_second", "_heaps", "_listed", "_seconds", "number")

    def __init__(self) -> None:
        """Start with none."""
        self._due: dict[TimerKey, Due] = {}
        self._buckets: dict[int, dict[TimerKey, None]] = {}
        self._seconds: list[int] = []
        self._listed: set[int] = set()
        self._front: list[Due] = []
        self._heaps: dict[int, list[Due]] = {}
        self._front_second: int | None = None
        self.number = 0
        """How many were ever set."""

    def set(self, key: TimerKey, at: float) -> None:
        """Let `key` be due at `at` instead of when it was."""
        before = self._due.get(key)
        second = floor(at)
        self.number += 1
        due = self._due[key] = (at, self.number, key)
        if before is not None:
            self._leave(key, floor(before[0]))
        bucket = self._buckets.get(second)
        if bucket is None:
            self._buckets[second] = {key: None}
            if second not in self._listed:
                self._listed.add(second)
                heappush(self._seconds, second)
        else:
            bucket[key] = None
        heap = self._heaps.get(second)
        if heap is not None:
            heappush(heap, due)
        front = self._front_second
        if front is not None and second < front:
            self._front_second = None

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`."""
        before = self._due.pop(key, None)
        if before is not None:
            self._leave(key, floor(before[0]))

    def _leave(self, key: TimerKey, second: int) -> None:
        bucket = self._buckets[second]
        if len(bucket) == 1:
            del self._buckets[second]
            self._heaps.pop(second, None)
            if second == self._front_second:
                self._front_second = None
        else:
            del bucket[key]

    def next_at(self) -> float | None:
        """Return when the next one is due."""
        front, due = self._front, self._due
        if self._front_second is not None and front and due.get(front[0][2]) == front[0]:
            return front[0][0]
        while self._front_second is not None or self._turn_to_next_second():
            front = self._front
            while front:
                if due.get(front[0][2]) == front[0]:
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
        second = self._front_second = seconds[0]
        bucket, heap = buckets[second], self._heaps.get(second)
        if heap is None or len(heap) > 2 * len(bucket) + OVER_MAX:
            heap = self._heaps[second] = [self._due[key] for key in bucket]
            heapify(heap)
        self._front = heap
        return True
