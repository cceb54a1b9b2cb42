"""The core's clock: seconds that only grow, over restarts too.

Law: it begins at 0 with the journal, goes on where the journal ends, and follows the monotonic clock between;
so it stands still while nobody schedules, and no jump of the wall clock can end a lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class CoreClock:
    """Monotonic seconds with an offset."""

    __slots__ = ("_monotonic", "_offset", "_start")

    def __init__(self, start: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Let it be `start` now."""
        self._monotonic, self._start = monotonic, start
        self._offset = start - monotonic()

    def now(self) -> float:
        """Return the core's time."""
        return max(self._start, self._monotonic() + self._offset)

    def left_s(self, at: float) -> float:
        """Return the seconds until `at`, 0 if it is over."""
        return max(0.0, at - self.now())
