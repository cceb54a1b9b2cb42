"""Measures what this agent's kernels compute, and what is used of the machine's memory, every few seconds.

Law: one look at all processes a sample, in a thread of its own; it takes a hundredth of a core at most, for
after a slow one the next is later. What cannot be read is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from replkernel.agent.core.phases import Kept, Named, Phases
from replkernel.agent.io.death import STARTED, every_process
from replkernel.errors import UNREADABLE
from replkernel.hosts.memory_cgroups import CGROUPS, UNLIMITED, counter, own_groups, with_parents
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.leasing.wire import USE_S, HostUse

log = logging.getLogger(__name__)

TIMES = slice(11, 15)
"""Where /proc/PID/stat has the CPU time of a process and of its children that are over, as STARTED counts."""
COST_TIMES = 100
FILE = "phases.json"
FILE_BYTES_MAX = 32 << 20
KEEP_S = 300.0
"""What was measured is written down this often, and when the agent ends."""
GIB = 1 << 30
V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


class Measuring:
    """`pids` says whose kernel each process is, `jobs_bytes` what jobs on cores have; `tell` hears of it.

    Phases are kept in the agent's directory.
    """

    def __init__(
        self,
        directory: Path,
        pids: Callable[[], Mapping[int, str]],
        jobs_bytes: Callable[[], int],
        tell: Callable[[HostUse], None],
    ) -> None:
        self._pids, self._jobs_bytes, self._tell = pids, jobs_bytes, tell
        self._directory = directory
        self.phases = Phases(kept_in(directory))
        self._keep_at = time.monotonic() + KEEP_S
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            await self._keep()

    async def _keep(self) -> None:
        kept = self.phases.kept()
        if not kept.over and not kept.living:
            return
        try:
            await asyncio.to_thread(replace_own, self._directory / FILE, msgspec.json.encode(kept))
        except OSError as error:
            log.warning("phases of kernels cannot be kept: %s", error)

    async def _run(self) -> None:
        while True:
            took_s = 0.0
            try:
                took_s = await self._sample()
                if self._keep_at <= time.monotonic():
                    self._keep_at = time.monotonic() + KEEP_S
                    await self._keep()
            except Exception:
                log.exception("what is used of this host cannot be measured")
            await asyncio.sleep(max(USE_S, took_s * COST_TIMES))

    async def _sample(self) -> float:
        """Take one sample and tell it; return how many seconds of CPU it took."""
        seen, (used_bytes, limit), took_s = await asyncio.to_thread(_look, dict(self._pids()))
        self.phases.take(seen, asyncio.get_running_loop().time(), time.time())
        jobs_bytes = min(used_bytes, self._jobs_bytes())
        self._tell(HostUse(self.phases.busy(), used_bytes / GIB, jobs_bytes / GIB, limit / GIB))
        return took_s


def kept_in(directory: Path) -> Kept:
    """Return what the agent of a directory has written down last; nothing where that cannot be read."""
    try:
        return msgspec.json.decode(read_own(directory / FILE, FILE_BYTES_MAX), type=Kept)
    except (OSError, *UNREADABLE):
        return Kept()


def _look(pids: Mapping[int, str]) -> tuple[dict[Named, tuple[str, float]], tuple[int, int], float]:
    began = time.thread_time()
    seen = cpu_times(pids) if pids else {}
    return seen, used_memory(), time.thread_time() - began


def cpu_times(pids: Mapping[int, str]) -> dict[Named, tuple[str, float]]:
    """Return, for each of these processes, its name and the CPU seconds that it and its descendants had."""
    parents, cpu, started = dict[int, int](), dict[int, int](), dict[int, int]()
    for pid, fields in every_process():
        parents[pid], started[pid] = int(fields[1]), int(fields[STARTED])
        cpu[pid] = sum(map(int, fields[TIMES]))
    owner = {pid: pid for pid in pids if pid in parents}
    sums = dict.fromkeys(owner, 0)
    for pid, ticks in cpu.items():
        root = _root(pid, parents, owner)
        if root:
            sums[root] += ticks
    per_s = os.sysconf("SC_CLK_TCK")
    return {Named(pid, started[pid]): (pids[pid], ticks / per_s) for pid, ticks in sums.items()}


def _root(pid: int, parents: Mapping[int, int], owner: dict[int, int]) -> int:
    """Return the process of ours that a process descends from, 0 if from none; `owner` remembers."""
    way = []
    while pid in parents and pid not in owner:
        way.append(pid)
        owner[pid] = 0  # Pids that name each other, as they come and go, end here.
        pid = parents[pid]
    root = owner.get(pid, 0)
    for each in way:
        owner[each] = root
    return root


def used_memory(proc: Path = Path("/proc"), root: Path = CGROUPS) -> tuple[int, int]:
    """Return how many bytes of memory cannot be had any more, and of how many.

    The second is 0 where that is all of the machine's, else the least that a cgroup may have.
    """
    kib = dict[str, int]()
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (proc / "meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            kib[name] = int(value.split()[0])
    total, free = kib.get("MemTotal", 0) * 1024, kib.get("MemAvailable", 0) * 1024
    most = total
    for group, top in own_groups(proc / "self" / "cgroup", root):
        for each in with_parents(group, top):
            for names in (V2, V1):
                limit, left = _left_in(each, *names)
                most, free = min(most, limit), min(free, left)
    return max(0, most - max(0, free)), 0 if most == total else most


def _left_in(group: Path, limit: str, used: str, cached: str) -> tuple[int, int]:
    """Return a group's limit, and what is left of it."""
    with contextlib.suppress(OSError, ValueError):
        most = int((group / limit).read_text())
        if most < UNLIMITED:
            held = int((group / used).read_text())
            return most, most - held + counter(group / "memory.stat", cached)
    return UNLIMITED, UNLIMITED
