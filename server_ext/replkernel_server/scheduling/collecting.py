"""Python's collector of cyclic garbage, kept out of the scheduler's decisions.

A collection visits what has been made since the last one, and takes 10 ms in a cluster of 10,000 hosts. The
core itself leaves no cycles, so collections can wait for a quiet moment. Law: only for a process that does
nothing else; one comes at the latest after LATEST_S, so garbage stays bounded.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Never

LOOK_S = 1.0
QUIET_S = 0.02
"""Nothing was decided for so long: a moment to collect."""
YOUNG_MIN = 5_000
"""With fewer new objects than this a collection is not worth its time."""
LATEST_S = 60.0
WHOLE_S = 6 * 3600.0
"""So often everything is looked at once, also what collections have put aside as old."""


class Collecting:
    """When to collect; time is an argument."""

    def __init__(self, now: float) -> None:
        """Begin with nothing to collect."""
        self._last = self._last_whole = now

    def due(self, now: float, young: int, *, quiet: bool) -> bool:
        """Tell whether to collect among `young` new objects."""
        if young < YOUNG_MIN:
            return False
        if quiet or now - self._last >= LATEST_S:
            self._last = now
            return True
        return False

    def whole_due(self, now: float) -> bool:
        """Tell whether this collection is to look at old objects as well."""
        if now - self._last_whole < WHOLE_S:
            return False
        self._last_whole = now
        return True


async def keep_collections_aside(decisions: Callable[[], int]) -> Never:
    """Collect between decisions from now on; `decisions` returns how many there have been. Never returns."""
    gc.disable()
    gc.collect()
    gc.freeze()
    collecting = Collecting(time.monotonic())
    try:
        while True:
            await asyncio.sleep(LOOK_S)
            before = decisions()
            await asyncio.sleep(QUIET_S)
            now = time.monotonic()
            if not collecting.due(now, gc.get_count()[0], quiet=decisions() == before):
                continue
            if collecting.whole_due(now):
                gc.unfreeze()
            gc.collect()
            gc.freeze()
    finally:
        gc.unfreeze()
        gc.enable()
