"""What the system says of processes that it killed for lack of memory, and which limit they ran into.

Reads cgroup v2, cgroup v1 and /proc/vmstat.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

_CGROUPS = Path("/sys/fs/cgroup")
_V1_LIMIT = "memory.limit_in_bytes"
_V2_LIMIT = "memory.max"
_V1_UNLIMITED = 1 << 60
_GIB = 1 << 30
_MIB = 1 << 20


class MemoryKills(NamedTuple):
    """The cgroups of a process, and how many processes have been killed for memory in them, and at all.

    Only a change between two counts means something.
    """

    groups: tuple[Path, ...] = ()
    in_groups: int = 0
    at_all: int = 0


def memory_kills(pid: int = 0, proc: Path = Path("/proc"), root: Path = _CGROUPS) -> MemoryKills:
    """Return the counts as of now for process `pid`, or for our own."""
    return _count(_groups(proc / (str(pid) if pid else "self") / "cgroup", root), proc)


def _count(groups: tuple[Path, ...], proc: Path) -> MemoryKills:
    in_groups = sum(_counter(file, "oom_kill") for group in groups for file in _events(group))
    return MemoryKills(groups, in_groups, _counter(proc / "vmstat", "oom_kill"))


def shortage(before: MemoryKills, proc: Path = Path("/proc"), root: Path = _CGROUPS) -> str:
    """Return which memory has run out since a count, as a clause; nothing when nobody was killed for it."""
    after = _count(before.groups, proc)
    if after.in_groups > before.in_groups:
        found = _limit(before.groups, root)
        if found is None:
            return "its cgroup ran into a memory limit"
        name, size = found
        return f"its cgroup's limit {name} is {format_size(size)}"
    return "the machine had no memory left" if after.at_all > before.at_all else ""


def format_size(size: int) -> str:
    """Write a number of bytes as people read it."""
    return f"{size / _GIB:.1f} GB" if size >= _GIB else f"{size / _MIB:.0f} MB"


def _limit(groups: tuple[Path, ...], root: Path) -> tuple[str, int] | None:
    """Return name and bytes of the narrowest limit on these cgroups, their parents' included."""
    found: list[tuple[int, str]] = []
    for directory in groups:
        while directory != directory.parent and directory.is_relative_to(root):
            for name in (_V2_LIMIT, _V1_LIMIT):
                with contextlib.suppress(OSError, ValueError):
                    size = int((directory / name).read_text())
                    if size < _V1_UNLIMITED:
                        found.append((size, name))
            directory = directory.parent
    return min(((name, size) for size, name in found), key=lambda item: item[1], default=None)


def _events(directory: Path) -> list[Path]:
    return [directory / "memory.events", directory / "memory.oom_control"]


def _groups(own: Path, root: Path) -> tuple[Path, ...]:
    found: list[Path] = []
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                found.append(root / group.lstrip("/"))
            elif "memory" in controllers.split(","):
                found.append(root / "memory" / group.lstrip("/"))
    return tuple(found)


def _counter(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
