"""When which object is due: one time each.

Law: an object has at most one timer; of two that are due at once the one that was set first goes first. The
heap may hold stale entries, at most as many as there are timers (and SLACK).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Literal, TypeAlias

TimerKind: TypeAlias = Literal["lease", "migration", "reservation", "scaling", "placing", "prewarm"]
TimerKey: TypeAlias = tuple[TimerKind, str]
SLACK = 64


class Timers:
    """A heap of times with lazy deletion."""

    __slots__ = ("_due", "_heap", "_number")

    def __init__(self) -> None:
        """Start with none."""
        self._due: dict[TimerKey, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, TimerKey]] = []
        self._number = 0

    def set(self, key: TimerKey, at: float) -> None:
        """Let `key` be due at `at` instead of when it was."""
        self._number += 1
        before = self._due.get(key)
        self._due[key] = (at, self._number)
        if before is None or at < before[0]:
            heappush(self._heap, (at, self._number, key))
            if len(self._heap) > 2 * len(self._due) + SLACK:
                self._compact()

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`."""
        self._due.pop(key, None)

    def next_at(self) -> float | None:
        """Return when the next one is due."""
        heap, due = self._heap, self._due
        while heap:
            at, number, key = heap[0]
            real = due.get(key)
            if real is None or real < (at, number):
                heappop(heap)
            elif real[1] != number:  # It was put off: its entry moves to where it belongs.
                heappop(heap)
                heappush(heap, (real[0], real[1], key))
            else:
                return at
        return None

    def pop(self) -> TimerKey:
        """Take the next one, which `next_at()` has named."""
        _, _, key = heappop(self._heap)
        del self._due[key]
        return key

    def at(self, key: TimerKey) -> float | None:
        """Return when `key` is due."""
        found = self._due.get(key)
        return None if found is None else found[0]

    def count(self) -> int:
        """Return how many there are."""
        return len(self._due)

    def _compact(self) -> None:
        self._heap = [(at, number, key) for key, (at, number) in self._due.items()]
        heapify(self._heap)
