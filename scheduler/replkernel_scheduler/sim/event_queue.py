"""What the driver has to do and when: a heap of (time, turn, number).

Law: of what is due at one time the smaller turn is first, then what was put down first.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

Deed: TypeAlias = Callable[[Any, float], None]


class EventQueue:
    """Deeds and their times."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        """Start with none."""
        self._heap: list[tuple[float, int, int, Deed, Any]] = []
        self._number = 0

    def post(self, at: float, turn: int, deed: Deed, what: object = None) -> None:
        """Have `deed(what, at)` done at `at`."""
        self._number += 1
        heappush(self._heap, (at, turn, self._number, deed, what))

    def head(self) -> tuple[float, int] | None:
        """Return time and turn of what is next."""
        return self._heap[0][:2] if self._heap else None

    def do_next(self) -> None:
        """Do what is next."""
        at, _, _, deed, what = heappop(self._heap)
        deed(what, at)

    def do_until(self, at: float, turn: int) -> None:
        """Do what comes before this time and turn, or with them."""
        while self._heap and self._heap[0][:2] <= (at, turn):
            self.do_next()

    def do_all(self) -> None:
        """Do what there is, and what comes of it, to the end."""
        while self._heap:
            self.do_next()
