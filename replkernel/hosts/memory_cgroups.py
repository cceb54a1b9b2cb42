"""The cgroups that may limit a process's memory, v2 and v1, and the counters in their files.

Law: nothing here raises: what cannot be read is not there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60
"""A limit from here on is none: v1 writes the largest number of pages there is."""


def own_groups(cgroup_file: Path, root: Path) -> list[tuple[Path, Path]]:
    """Return the cgroups of a process as its ``/proc/…/cgroup`` says, each with the top of its hierarchy."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in cgroup_file.read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                top = root / "memory" if controllers else root
                found.append((top / name.lstrip("/"), top))
    return found


def with_parents(group: Path, top: Path) -> Iterator[Path]:
    """Yield a cgroup, those around it, and the top: a container may see its own as that, with the limit."""
    while group != top and group.is_relative_to(top):
        yield group
        group = group.parent
    yield top


def counter(path: Path, name: str) -> int:
    """Return a number by name from a file of names and numbers, as ``memory.stat``; 0 where it is not."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
