"""One timer that rings when a core's deadline has come.

Law: it is set again only for an earlier deadline; one that rings too early is set anew.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable


class DeadlineTimer:
    """`deadline` returns when to ring (seconds, monotonic), or None; `ring` is then called in the loop."""

    def __init__(self, deadline: Callable[[], float | None], ring: Callable[[], None]) -> None:
        self._deadline = deadline
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0
        self._closed = False

    def arm(self) -> None:
        """Have it ring at the deadline as that is now."""
        self._set(None if self._closed else self._deadline())

    def _set(self, due: float | None) -> None:
        if due == math.inf:
            due = None
        if self._handle is not None:
            if due is not None and self._at <= due:
                return
            self._handle.cancel()
            self._handle = None
        if due is not None:
            self._at = due
            self._handle = self._loop.call_later(max(0.0, due - time.monotonic()), self._on_time)

    def _on_time(self) -> None:
        self._handle = None
        due = self._deadline()
        if due is not None and due <= time.monotonic():
            self._ring()
        else:
            self._set(due)

    def close(self) -> None:
        """Ring no more."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
