"""When which object is due: one time each.

Law: an object has at most one timer; of two that are due at once the one that was set first goes first.
Timers lie in buckets of a second, of which only those are sorted that were the next one: setting and
cancelling cost the same however many there are, and little is left behind of timers that were cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import floor, inf
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


class _Second:
    """The timers of one second: their keys, and their heap from when it was the next one on."""

    __slots__ = ("heap", "keys")

    def __init__(self) -> None:
        """Start with none."""
        self.keys: dict[TimerKey, None] = {}
        self.heap: list[Due] | None = None


class Timers:
    """Buckets by second; `_front` is the heap of the next one, and may hold timers set otherwise since.

    The heaps of those that were the next one are kept: timers of the near future come and go all the time.
    """

    __slots__ = ("_buckets", "_due", "_front", "_front_second", "_listed", "_seconds", "number", "soonest")

    def __init__(self) -> None:
        """Start with none."""
        self._due: dict[TimerKey, Due] = {}
        self._buckets: dict[int, _Second] = {}
        self._seconds: list[int] = []
        self._listed: set[int] = set()
        self._front: list[Due] = []
        self._front_second: int | None = None
        self.number = 0
        """How many were ever set."""
        self.soonest = inf
        """None is due before this: for who is asked at every event, and need not know which is next."""

    def set(self, key: TimerKey, at: float) -> None:
        """Let `key` be due at `at` instead of when it was."""
        due, second = self._due, floor(at)
        before = due.get(key)
        self.number += 1
        entry = due[key] = (at, self.number, key)
        if before is not None:
            self._leave(key, floor(before[0]))
        if at < self.soonest:
            self.soonest = at
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = _Second()
            if second not in self._listed:
                self._listed.add(second)
                heappush(self._seconds, second)
        bucket.keys[key] = None
        if bucket.heap is not None:
            heappush(bucket.heap, entry)
        front = self._front_second
        if front is not None and second < front:
            self._front_second = None

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`."""
        before = self._due.pop(key, None)
        if before is not None:
            self._leave(key, floor(before[0]))

    def _leave(self, key: TimerKey, second: int) -> None:
        keys = self._buckets[second].keys
        del keys[key]
        if not keys:
            del self._buckets[second]
            if second == self._front_second:
                self._front_second = None

    def next_at(self) -> float | None:
        """Return when the next one is due."""
        due = self._due
        while self._front_second is not None or self._turn_to_next_second():
            front = self._front
            while front:
                first = front[0]
                if due.get(first[2]) == first:
                    self.soonest = first[0]
                    return first[0]
                heappop(front)
            self._front_second = None
        self.soonest = inf
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
        bucket = buckets[second]
        if bucket.heap is None or len(bucket.heap) > 2 * len(bucket.keys) + OVER_MAX:
            bucket.heap = [self._due[key] for key in bucket.keys]
            heapify(bucket.heap)
        self._front = bucket.heap
        return True
