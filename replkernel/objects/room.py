"""How much a store of files on a disk of its own still takes, as a kernel process sees it before it ships.

Law: says no only where it can know; where cache and store share a disk, or the store is a server, it says
nothing, and whoever writes finds out.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

KEPT_PART = 0.05
KEPT_BYTES_MAX = 16 * 2**20
"""So much of the disk, at most, is left to what is small: checkpoints, marks, other variables."""

PROMISED_S = 5.0
"""What was let through counts as not yet written for so long."""

_MIB = 2**20


class StoreRoom:
    """The room of the store at `url`; chunks of the cache in `cache_dir` cost none on the same disk."""

    def __init__(self, url: str, cache_dir: str, now: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        path = url.removeprefix("file://").removeprefix("localhost")
        self._path = path if url.startswith("file://") else ""
        self._cache_dir = cache_dir
        self._now = now
        self._promised: deque[tuple[float, int]] = deque()

    def refuses(self, size: int) -> str:
        """Return in a clause why `size` bytes more do not fit, or an empty string."""
        left = self._left()
        if left is None or size <= left:
            return ""
        free = f"{max(0, left) // _MIB} MiB free"
        return f"the object store {self._url} has no room left for it ({free})"

    def promise(self, size: int) -> None:
        """Take note that `size` bytes are on their way to the store."""
        self._promised.append((self._now() + PROMISED_S, size))

    def _left(self) -> int | None:
        if not self._path:
            return None
        try:
            if os.stat(self._path).st_dev == os.stat(self._cache_dir).st_dev:
                return None
            disk = os.statvfs(self._path)
        except OSError:
            return None
        while self._promised and self._promised[0][0] <= self._now():
            self._promised.popleft()
        kept = min(KEPT_BYTES_MAX, int(disk.f_blocks * disk.f_frsize * KEPT_PART))
        return disk.f_bavail * disk.f_frsize - kept - sum(size for _, size in self._promised)
