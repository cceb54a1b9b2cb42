"""What the system says of processes that it killed for lack of memory, and which limit they ran into.

Reads cgroup v2, cgroup v1 and /proc/vmstat.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from replkernel.hosts.memory_cgroups import CGROUPS, UNLIMITED, counter, own_groups, with_parents

_V1_LIMIT = "memory.limit_in_bytes"
_V2_LIMIT = "memory.max"
_GIB = 1 << 30
_MIB = 1 << 20


class MemoryKills(NamedTuple):
    """The cgroups of a process, and how many processes have been killed for memory in them, and at all.

    Only a change between two counts means something.
    """

    groups: tuple[Path, ...] = ()
    in_groups: int = 0
    at_all: int = 0


def memory_kills(pid: int = 0, proc: Path = Path("/proc"), root: Path = CGROUPS) -> MemoryKills:
    """Return the counts as of now for process `pid`, or for our own."""
    groups = own_groups(proc / (str(pid) if pid else "self") / "cgroup", root)
    return _count(tuple(group for group, _ in groups), proc)


def _count(groups: tuple[Path, ...], proc: Path) -> MemoryKills:
    in_groups = sum(counter(file, "oom_kill") for group in groups for file in _events(group))
    return MemoryKills(groups, in_groups, counter(proc / "vmstat", "oom_kill"))


def shortage(before: MemoryKills, proc: Path = Path("/proc"), root: Path = CGROUPS) -> str:
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
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / _MIB:.0f} MiB"


def _limit(groups: tuple[Path, ...], root: Path) -> tuple[str, int] | None:
    """Return name and bytes of the narrowest limit on these cgroups, their parents' included."""
    found: list[tuple[int, str]] = []
    for directory in (around for group in groups for around in with_parents(group, root)):
        for name in (_V2_LIMIT, _V1_LIMIT):
            with contextlib.suppress(OSError, ValueError):
                size = int((directory / name).read_text())
                if size < UNLIMITED:
                    found.append((size, name))
    return min(((name, size) for size, name in found), key=lambda item: item[1], default=None)


def _events(directory: Path) -> list[Path]:
    return [directory / "memory.events", directory / "memory.oom_control"]
