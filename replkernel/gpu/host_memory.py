"""How much memory the host has left for what comes from a GPU: of the machine, and of the process's cgroups.

Law: nothing here raises. Who takes more than a container's limit is killed, not refused: it is asked before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from replkernel.hosts.memory_cgroups import CGROUPS, UNLIMITED, counter, own_groups, with_parents

PROC = Path("/proc")
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_bytes(proc: Path | None = None, root: Path | None = None) -> int | None:
    """Return how many bytes this process can take without harm; None where the system does not tell."""
    proc, root = proc or PROC, root or CGROUPS
    found = [*_of_machine(proc)]
    for own, top in own_groups(proc / "self" / "cgroup", root):
        found += [left for group in with_parents(own, top) for left in _of_group(group)]
    return min(found, default=None)


def _of_machine(proc: Path) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _of_group(group: Path) -> Iterator[int]:
    """Yield what a cgroup leaves: up to its limit, with the files' pages that the system takes back."""
    for limit, usage, cached in (_V2, _V1):
        with contextlib.suppress(OSError, ValueError):
            most, used = int((group / limit).read_text()), int((group / usage).read_text())
            if most < UNLIMITED:
                yield max(0, most - used + counter(group / "memory.stat", cached))
