"""Many kernels of three replicas each on one machine, whose agents are named as three hosts.

REPLKERNEL_BENCH_KERNELS sets how many. All run cells; then CPU and memory (PSS) of each, and what is left
after shutdown: processes, ports, files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from replkernel.agent.io.lookup import stop_agent
from replkernel.client.inquiry import agent_names, ask_agents
from tests.bench.kernels import Kernel, Place, cpu_s, place, pss_bytes
from tests.bench.report import Result, quantile
from tests.bench.survival_cells import await_true, value
from tests.support.stock import OURS

KERNELS = int(os.environ.get("REPLKERNEL_BENCH_KERNELS", "50"))
AT_A_TIME = 4
CELLS = 5
HOSTS = ("h1", "h2", "h3")
SETTLE_S = 8.0
IDLE_S = 20.0
MIB = 2**20


def measure() -> Result:
    """Start them, run cells on all, measure at rest, shut down, look for what is left."""
    with place(REPLKERNEL_HOSTS=",".join(HOSTS)) as here:
        began = time.perf_counter()
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            kernels = list(pool.map(lambda _: Kernel(OURS, here), range(KERNELS)))
            started_s = time.perf_counter() - began
            try:
                cells = [took for each in pool.map(_cells, kernels, range(KERNELS)) for took in each]
                await_true(lambda: _replicas(here) == 3 * KERNELS, "all replicas")
                details = _at_rest(here)
            finally:
                began = time.perf_counter()
                list(pool.map(lambda kernel: kernel.close(), kernels))
                ended_s = time.perf_counter() - began
        details |= _left(here)
        details |= {
            "kernels": KERNELS,
            "replicas": 3 * KERNELS,
            "started_s": started_s,
            "shut_down_s": ended_s,
            "cell_p50_s": quantile(cells, 50),
            "cell_p95_s": quantile(cells, 95),
            "cells": len(cells),
        }
    memory = details["pss_mib_per_kernel"]
    return Result(
        "survival_many", "MiB", [memory], [], "all run cells; nothing is left after shutdown", details
    )


def _cells(kernel: Kernel, number: int) -> list[float]:
    kernel.run(f"import numpy as np; number = {number}; data = np.arange(1000) * number; total = 0")
    took = [kernel.run(f"total += int(data[{index}])") for index in range(CELLS)]
    wanted = sum(number * index for index in range(CELLS))
    if value(kernel, "print(number, total)") != f"{number} {wanted}":
        raise RuntimeError(f"kernel {number} has another one's state")
    return took


def _replicas(here: Place) -> int:
    """Return how many replicas have a process."""
    kernels = ask_agents(here.env, timeout_s=10.0).kernels
    return sum(bool(replica.kernel_pid) for kernel in kernels for replica in kernel.replicas)


def _at_rest(here: Place) -> dict[str, Any]:
    time.sleep(SETTLE_S)
    pids = here.pids()
    before = cpu_s(pids)
    time.sleep(IDLE_S)
    used_s = cpu_s(pids) - before
    return {
        "pss_mib_per_kernel": pss_bytes(pids) / MIB / KERNELS,
        "pss_mib_by_kind_per_kernel": {kind: size / KERNELS for kind, size in _by_kind(pids).items()},
        "idle_cpu_percent_of_a_core_per_kernel": used_s / IDLE_S * 100 / KERNELS,
        "processes": len(pids),
    }


def _by_kind(pids: Sequence[int]) -> dict[str, float]:
    """Return the PSS in MiB of routers, agents, and what zygotes and they forked."""
    kinds: dict[str, list[int]] = {"routers": [], "agents": [], "kernel processes and zygotes": []}
    for pid in pids:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            kind = "kernel processes and zygotes"
            if b"replkernel.router" in command:
                kind = "routers"
            elif b"replkernel.agent\0" in command:
                kind = "agents"
            kinds[kind].append(pid)
    return {kind: pss_bytes(found) / MIB for kind, found in kinds.items()}


def _left(here: Place) -> dict[str, Any]:
    """Return what is there after shutdown, before and after the agents are stopped."""
    time.sleep(2.0)
    agents = [Path(here.env["JUPYTER_DATA_DIR"]) / "replkernel" / "agents" / host for host in HOSTS]
    files = [str(path) for agent in agents for path in (agent / "kernels").glob("*")]
    files += [str(path) for path in (Path(here.env["REPLKERNEL_SOCKET_DIR"]) / "k").glob("*")]
    files += [str(path) for path in Path(here.env["JUPYTER_RUNTIME_DIR"]).glob("kernel-*.json")]
    files += [str(path) for path in (agents[0].parents[1] / "kernels").glob("*")]
    ports = [connection.laddr.port for pid in here.pids() for connection in _listening(pid)]
    for name in agent_names(here.env):
        stop_agent(name, here.env)
    time.sleep(1.0)
    return {"left_files": files[:20], "left_ports": ports, "left_processes": len(here.pids())}


def _listening(pid: int) -> list[Any]:
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).net_connections(kind="inet")
        return [connection for connection in found if connection.status == psutil.CONN_LISTEN]
    return []
