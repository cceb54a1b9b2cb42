"""CPU and memory of the kernels' processes, as this machine's own agents tell which those are.

Law: it looks and changes nothing. Processes of other machines are not measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil

from replkernel.client.inquiry import ask_agents, live_agents
from replkernel.protocol.status import KernelStatus

LOOK_EVERY_S = 5.0
ASK_S = 5.0
MIB = 2**20


class Used(msgspec.Struct):
    """What processes use together, in MiB; `cpu_s` since they began."""

    processes: int = 0
    pss_mib: float = 0.0
    rss_mib: float = 0.0
    cpu_s: float = 0.0


class Look(msgspec.Struct):
    """One look: each kernel's own processes (replicas and router), and those that kernels share.

    Of the `replicas` that have a process, those `elsewhere` are on other machines and not measured.
    """

    at_s: float
    kernels: dict[str, Used]
    shared: dict[str, Used]
    replicas: int
    elsewhere: int = 0


class Machine(msgspec.Struct):
    """How busy this machine was, second by second (shares of all cores), and the least memory it had left."""

    busy: list[float]
    free_least_mib: float
    free_first_mib: float


class Processes:
    """Looks at the kernels `wanted` from time to time."""

    def __init__(self, env: Mapping[str, str], server_pid: int | None) -> None:
        free = psutil.virtual_memory().available / MIB
        self.looks: list[Look] = []
        self.machine = Machine([], free, free)
        self.trouble = ""
        self._env, self._server_pid = env, server_pid
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, kernels: set[str]) -> None:
        """Look once, and again from time to time; `kernels` may grow meanwhile."""
        await self.look(set(kernels))
        psutil.cpu_percent()
        self._tasks = [asyncio.create_task(self._watch(kernels)), asyncio.create_task(self._machine())]

    async def look(self, kernels: set[str]) -> None:
        """Look once."""
        try:
            seen = await asyncio.to_thread(_look, self._env, kernels, self._server_pid)
        except Exception as error:  # Agents that cannot be asked cost these figures, not the test.
            self.trouble = f"The agents cannot be asked ({error}): CPU and memory are not measured."
            return
        if seen.kernels:
            self.looks.append(seen)
            if seen.elsewhere:
                here = f"{seen.replicas - seen.elsewhere} of {seen.replicas} replicas are on this machine"
                self.trouble = f"{here}: CPU and memory are theirs and the routers' alone."
        elif kernels and not self.looks:
            self.trouble = (
                "No agent on this machine has these kernels: CPU and memory are not measured. (Run it "
                "where the agents run, as their user and with their JUPYTER_DATA_DIR.)"
            )

    async def _watch(self, kernels: set[str]) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look(set(kernels))

    async def _machine(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.machine.busy.append(psutil.cpu_percent() / 100)
            free = psutil.virtual_memory().available / MIB
            self.machine.free_least_mib = min(self.machine.free_least_mib, free)

    async def end(self, kernels: set[str]) -> None:
        """Look once more, and no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.look(kernels)

    def cpu_shares(self) -> dict[str, float]:
        """Return the share of a core that each kernel used between the first and the last look."""
        if len(self.looks) < 2:
            return {}
        first, last = self.looks[0], self.looks[-1]
        took = last.at_s - first.at_s
        return {
            kernel: max(0.0, used.cpu_s - first.kernels.get(kernel, Used()).cpu_s) / took
            for kernel, used in last.kernels.items()
        }

    def cores_used(self) -> float:
        """Return how many cores all of the test's processes used together, those that have ended too."""
        if len(self.looks) < 2:
            return 0.0
        spent = sum(_spent(before, after) for before, after in pairwise(self.looks))
        return spent / (self.looks[-1].at_s - self.looks[0].at_s)


def _spent(before: Look, after: Look) -> float:
    """Return the CPU seconds between two looks; what a process spent after its last look is not known."""
    known = before.kernels | before.shared
    now = after.kernels | after.shared
    return sum(max(0.0, used.cpu_s - known.get(name, Used()).cpu_s) for name, used in now.items())


def _look(env: Mapping[str, str], kernels: set[str], server_pid: int | None) -> Look:
    near = {address.name for address in live_agents(env) if not address.far}
    told = told_of(ask_agents(env, ASK_S).kernels, kernels, near)
    own = {pid for group in told.kernels.values() for pid in group}
    groups = {"agents": told.agents, "zygotes": _children(told.agents) - own}
    if server_pid is not None:
        groups["Jupyter Server"] = {server_pid}
    groups["this test"] = {os.getpid()}
    shared = {name: _used(group) for name, group in groups.items()}
    used = {kernel: _used(group) for kernel, group in told.kernels.items()}
    return Look(time.monotonic(), used, shared, told.replicas, told.elsewhere)


class Told(msgspec.Struct):
    """What agents tell of kernels: processes on this machine, and replicas with one, here or `elsewhere`."""

    kernels: dict[str, set[int]]
    agents: set[int]
    replicas: int = 0
    elsewhere: int = 0


def told_of(known: Iterable[KernelStatus], kernels: set[str], near: set[str]) -> Told:
    """Return what is told of `kernels`, where `near` are the hosts of this machine."""
    told = Told(defaultdict(set), set())
    for kernel in known:
        if kernel.kernel_id not in kernels:
            continue
        if kernel.router_pid:
            told.kernels[kernel.kernel_id].add(kernel.router_pid)
        for replica in kernel.replicas:
            if not replica.kernel_pid:
                continue
            told.replicas += 1
            if replica.host in near:
                told.kernels[kernel.kernel_id].add(replica.kernel_pid)
                told.agents.add(replica.agent_pid)
            else:
                told.elsewhere += 1
    return told


def _children(agents: set[int]) -> set[int]:
    found: set[int] = set()
    for pid in agents:
        with contextlib.suppress(psutil.Error):
            found |= {child.pid for child in psutil.Process(pid).children()}
    return found


def _used(pids: Iterable[int]) -> Used:
    used = Used()
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            process = psutil.Process(pid)
            times = process.cpu_times()
            used.cpu_s += times.user + times.system
            used.rss_mib += process.memory_info().rss / MIB
            used.pss_mib += _pss_mib(pid)
            used.processes += 1
    return used


def _pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
