"""Where tests' directories lie: in memory where there is much of it, for they make and sync many files."""

from __future__ import annotations

import os
from collections.abc import Callable

from replkernel.gpu.host_memory import free_bytes

IN_MEMORY = "/dev/shm"
ROOM_BYTES = 8 << 30
"""So much must be free; all tests together leave about one."""


def roomy_memory(
    place: str = IN_MEMORY,
    room_bytes: int = ROOM_BYTES,
    available: Callable[[], int | None] = free_bytes,
) -> str | None:
    """Return a file system in memory on which tests can have their directories and start programs.

    What lies there counts against the limit of a container, too.
    """
    try:
        disk = os.statvfs(place)
    except OSError:
        return None
    free = min(disk.f_bavail * disk.f_frsize, available() or 0)
    usable = os.access(place, os.W_OK) and not disk.f_flag & os.ST_NOEXEC
    return place if usable and free >= room_bytes else None
