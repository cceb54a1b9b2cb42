"""Where tests' directories lie: in memory where there is much of it, for they make and sync many files."""

from __future__ import annotations

import os
from pathlib import Path

IN_MEMORY = "/dev/shm"
ROOM_BYTES = 8 << 30
"""So much must be free; all tests together leave about one."""


def roomy_memory(
    place: str = IN_MEMORY, room_bytes: int = ROOM_BYTES, memory: Path = Path("/proc/meminfo")
) -> str | None:
    """Return a file system in memory on which tests can have their directories and start programs."""
    try:
        disk = os.statvfs(place)
        lines = memory.read_text().splitlines()
    except OSError:
        return None
    (available,) = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")] or [0]
    free = min(disk.f_bavail * disk.f_frsize, available)
    usable = os.access(place, os.W_OK) and not disk.f_flag & os.ST_NOEXEC
    return place if usable and free >= room_bytes else None
