"""What a kernel's processes hold: memory, descriptors, threads, sockets and disk, by role; and the bounds."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

MIB = 2**20
SLACK: Mapping[str, float] = {"MiB": 64, "fds": 24, "threads": 8, "sockets": 24, "processes": 3}
"""How much more than at first each may be, beside a quarter."""
DISK_MIB_MAX = 1024
ROLES = {
    "replkernel.agent.io.zygote": "zygote or kernel process",
    "replkernel.agent": "agent",
    "replkernel.router": "router",
    "replkernel.kernel": "zygote or kernel process",
}

Reading = dict[str, dict[str, float]]
"""Of each role the most that one process has of each thing, and the number of processes."""


def read(pids: Sequence[int], roots: Sequence[Path]) -> Reading:
    """Read all that the processes hold, and the disk below `roots`, each file once."""
    found: Reading = {}
    count: Counter[str] = Counter()
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            role = _role(process.cmdline())
            holds = {
                "MiB": process.memory_info().rss / MIB,
                "fds": process.num_fds(),
                "threads": process.num_threads(),
                "sockets": sum(link.startswith("socket:") for link in _links(pid)),
            }
            count[role] += 1
            known = found.setdefault(role, {})
            for name, value in holds.items():
                known[name] = max(known.get(name, 0), value)
    for role, number in count.items():
        found[role]["processes"] = number
    found["disk"] = {"MiB": _disk_bytes(roots) / MIB}
    return found


def beyond(first: Reading, now: Reading) -> list[str]:
    """Say what has grown past its bound since the first reading."""
    said = []
    for role, holds in now.items():
        if role == "disk":
            if holds["MiB"] > DISK_MIB_MAX:
                said.append(f"disk: {holds['MiB']:.0f} MiB of at most {DISK_MIB_MAX}")
            continue
        for name, value in holds.items():
            at_first = first.get(role, {}).get(name, 0)
            bound = 1.25 * at_first + SLACK[name]
            if value > bound:
                said.append(f"{role}: {value:.0f} {name}, {at_first:.0f} at first")
    return said


def _role(command: Sequence[str]) -> str:
    return next((role for module, role in ROLES.items() if module in command), "other")


def _links(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(entry))
    return found


def _disk_bytes(roots: Sequence[Path]) -> int:
    sizes: dict[tuple[int, int], int] = {}
    for root in roots:
        for directory, _, names in os.walk(root):
            for name in names:
                with contextlib.suppress(OSError):
                    about = os.lstat(os.path.join(directory, name))
                    sizes[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(sizes.values())
