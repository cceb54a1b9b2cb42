"""Counts what large state takes on this host's disk, a while after it changed, for the host's processes.

Law: nothing ticks where nothing is stored, and counting takes a small part of one thread's time.
"""

from __future__ import annotations

import asyncio
import logging

from replkernel.objects import usage
from replkernel.objects.room import path_of

log = logging.getLogger(__name__)

COUNT_EVERY_S = 2.0
"""So long after a change it is counted, with all that has changed meanwhile."""

COUNT_REST = 50.0
"""The next count waits at least so many times as long as the last one took."""


class DiskUsage:
    """What the cache in `cache_dir` and the stores of files beside it take."""

    def __init__(self, cache_dir: str) -> None:
        self._cache_dir = cache_dir
        self._stores: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._not_before = 0.0

    def changed(self, store_url: str) -> None:
        """Note that something was stored at `store_url`, or has left it."""
        if path := path_of(store_url):
            self._stores.add(path)
        if self._task is not None:
            self._again = True
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            due = max(loop.time() + COUNT_EVERY_S, self._not_before)
            self._timer = loop.call_at(due, self._start)

    def _start(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._count())

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        began, self._again = loop.time(), False
        try:
            taken = await asyncio.to_thread(usage.count, [self._cache_dir, *sorted(self._stores)])
            await asyncio.to_thread(usage.tell, self._cache_dir, taken)
        except OSError as error:
            log.warning("what large state takes on the disk was not noted: %s", error)
        self._not_before = loop.time() + COUNT_REST * (loop.time() - began)
        self._task = None
        if self._again:
            self.changed("")

    def close(self) -> None:
        """Count no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
