"""How much a store of files on a disk of its own still takes, as a kernel process sees it before it ships.

Law: says no only where it can know; where cache and store share a disk, or the store is a server, it says
nothing, and whoever writes finds out.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

KEPT_PART = 0.05
KEPT_BYTES_MAX = 16 * 2**20
"""So much of the disk, at most, is left to what is small: checkpoints, marks, other variables."""

PROMISED_S = 5.0
"""What was let through is on its way for so long, unless the disk shows that it has arrived."""

_MIB = 2**20


class Disk(NamedTuple):
    """The bytes of a disk: what is free for this user, and all of it."""

    free: int
    total: int


class Promise(NamedTuple):
    """Bytes that were let through: on their way until `until`; `free` is what there was before them."""

    until: float
    size: int
    free: int


class StoreRoom:
    """The room of the store at `url`; `disk` tells how it stands, None where that cannot be known."""

    def __init__(
        self, url: str, disk: Callable[[], Disk | None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self._disk = disk
        self._now = now
        self._promised: deque[Promise] = deque()

    def refuses(self, size: int) -> str:
        """Return in a clause why `size` bytes more do not fit, or an empty string."""
        disk = self._disk()
        if disk is None:
            return ""
        left = self._left(disk)
        if size <= left:
            return ""
        free = f"{max(0, left) // _MIB} MiB free"
        return f"the object store {self._url} has no room left for it ({free})"

    def promise(self, size: int) -> None:
        """Take note that `size` bytes are on their way to the store."""
        disk = self._disk()
        if disk is not None:
            self._promised.append(Promise(self._now() + PROMISED_S, size, disk.free))

    def _left(self, disk: Disk) -> int:
        while self._promised and self._promised[0].until <= self._now():
            self._promised.popleft()
        coming = 0
        if self._promised:
            arrived = max(0, self._promised[0].free - disk.free)
            coming = max(0, sum(promise.size for promise in self._promised) - arrived)
        return disk.free - min(KEPT_BYTES_MAX, int(disk.total * KEPT_PART)) - coming


def room_of(url: str, cache_dir: str) -> StoreRoom:
    """Return the room of a store; chunks of the cache in `cache_dir` cost none on the same disk."""
    path = url.removeprefix("file://").removeprefix("localhost") if url.startswith("file://") else ""

    def disk() -> Disk | None:
        if not path:
            return None
        try:
            if os.stat(path).st_dev == os.stat(cache_dir).st_dev:
                return None
            status = os.statvfs(path)
        except OSError:
            return None
        return Disk(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)

    return StoreRoom(url, disk)
