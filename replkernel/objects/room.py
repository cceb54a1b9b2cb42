"""How much more large state the disk of store and cache may take, as a process sees it before it ships.

What both take together is bounded by a share of the room that there would be without them. Law: says no
before a byte is written, and only where it can know; a cell is never slowed by it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from replkernel.objects.usage import told

KEPT_PART = 0.05
KEPT_BYTES_MAX = 16 * 2**20
"""So much of the disk, at most, is left to what is small: checkpoints, marks, other variables."""

SMALL_BYTES = 2**20
"""What takes no more is not refused for the share: a small variable may be what replaces a large one."""

PROMISED_S = 5.0
"""What was let through is on its way for so long, unless the disk shows that it has arrived."""

_MIB = 2**20


class Disk(NamedTuple):
    """The bytes of a disk: what is free for this user, all of it, and what large state takes of it."""

    free: int
    total: int
    taken: int = 0


class Promise(NamedTuple):
    """Bytes that were let through: on their way until `until`; `free` is what there was before them."""

    until: float
    size: int
    free: int


class StoreRoom:
    """The room of `place`; `disk` tells how it stands, None where that cannot be known.

    `share` is the part of what is free, or taken by large state already, that this may take.
    """

    def __init__(
        self,
        place: str,
        disk: Callable[[], Disk | None],
        now: Callable[[], float] = time.monotonic,
        *,
        share: float = 1.0,
    ) -> None:
        self._place = place
        self._share = share
        self._disk = disk
        self._now = now
        self._promised: deque[Promise] = deque()

    def refuses(self, size: int) -> str:
        """Return in a clause why `size` bytes more do not fit, or an empty string."""
        disk = self._disk()
        if disk is None:
            return ""
        coming = self._coming(disk)
        left = disk.free - min(KEPT_BYTES_MAX, int(disk.total * KEPT_PART)) - coming
        if size > left:
            return f"{self._place} has no room left for it ({max(0, left) // _MIB} MiB free)"
        allowed = int(self._share * (disk.free + disk.taken)) - disk.taken - coming
        if size > max(allowed, SMALL_BYTES):
            return (
                f"large state may take {self._share:.0%} of the free disk of {self._place} and has "
                f"{max(0, allowed) // _MIB} MiB of that left (setting REPLKERNEL_DISK_PERCENT)"
            )
        return ""

    def promise(self, size: int) -> None:
        """Take note that `size` bytes are on their way to the store."""
        disk = self._disk()
        if disk is not None:
            self._promised.append(Promise(self._now() + PROMISED_S, size, disk.free))

    def _coming(self, disk: Disk) -> int:
        """Return the bytes that were let through and have not arrived yet."""
        while self._promised and self._promised[0].until <= self._now():
            self._promised.popleft()
        if not self._promised:
            return 0
        arrived = max(0, self._promised[0].free - disk.free)
        return max(0, sum(promise.size for promise in self._promised) - arrived)


def path_of(url: str) -> str:
    """Return the directory of a store of files, an empty string for other stores."""
    return url.removeprefix("file://").removeprefix("localhost") if url.startswith("file://") else ""


def room_of(url: str, cache_dir: str, share: float) -> StoreRoom:
    """Return the room of a store and of the cache in `cache_dir`, whose chunks are the store's on one disk.

    Of a server nothing is known: then, and where the store has a disk of its own, what the cache takes is
    bounded by the cache itself.
    """
    path = path_of(url) or cache_dir

    def one_disk() -> bool:
        return os.stat(path).st_dev == os.stat(cache_dir).st_dev

    place = f"the blob cache {cache_dir} (setting JUPYTER_DATA_DIR)"
    with contextlib.suppress(OSError):
        place = place if one_disk() else f"the object store {url}"

    def disk() -> Disk | None:
        try:
            taken = told(cache_dir) if one_disk() else 0
            status = os.statvfs(path)
        except OSError:
            return None
        return Disk(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize, taken)

    return StoreRoom(place, disk, share=share)
