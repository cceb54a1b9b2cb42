"""Carries calls from other threads into the event loop: in order, and with one wake-up for all that wait.

Law: what is posted is called in the loop, in the order of posting; one call that fails stops no other.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

log = logging.getLogger(__name__)


class LoopMail:
    """The way of one thread or more into the loop that runs when this is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._called = False

    def post(self, take: Callable[[Any], None], items: Iterable[Any]) -> None:
        """Have `take(item)` called in the loop for each of `items`; once the loop has ended, nothing is."""
        with self._lock:
            self._waiting.extend((take, item) for item in items)
            if self._called or not self._waiting:
                return
            self._called = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            log.debug("the loop ended before its mail could be taken")

    def _deliver(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            self._called = False
        for take, item in waiting:
            try:
                take(item)
            except Exception:
                log.exception("%s could not be handled", type(item).__name__)
