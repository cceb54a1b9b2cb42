"""The state after healing: read on every replica by moving the kernel there; and what is left after shutdown.

Law: a replica's state is what a cell prints that runs on it, not what its keeper says.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replkernel.client.inquiry import ask_agents
from tests.e2e.faults.cells import AUDIT
from tests.e2e.faults.hosts import kernel_processes
from tests.e2e.faults.schedule import HOSTS
from tests.support.files_below import files_below

if TYPE_CHECKING:
    from tests.e2e.faults.clients import Client
    from tests.e2e.faults.rig import Rig

TRIES_MAX = 10
WHOLE_S = 40.0
COMMITTED_S = 40.0
ENDED_S = 15.0
"""Hosts that are late have so long to end what a kernel had there: its router does not wait for them."""
NEWS_S = 0.05
"""The news of a death takes about this long; a new process takes longer to be there."""

Lists = dict[str, tuple[str, ...]]
Sums = dict[str, dict[str, int]]


def audit(rig: Rig, client: Client) -> tuple[Lists, Sums]:
    """Return the list and the checksums as each replica has them."""
    lists: Lists = {}
    sums: Sums = {}
    try:
        await_whole(rig)
        for _ in range(TRIES_MAX):
            replica, printed, count = client.ask(AUDIT)
            await_committed(count)
            names, found = json.loads(printed)
            lists[replica], sums[replica] = tuple(names), found
            if len(lists) == len(HOSTS):
                await_whole(rig)
                return lists, sums
            if rig.plan.executor != "rotate":
                for read in lists:
                    rig.kill_kernels(rig.hosts[HOSTS[int(read[1:]) - 1]])
                time.sleep(NEWS_S)
    finally:
        client.close()
    rig.note_broken(f"only {', '.join(sorted(lists))} could be read after healing")
    return lists, sums


def await_whole(rig: Rig) -> None:
    """Return when each host has a live kernel process."""
    deadline = time.monotonic() + WHOLE_S
    while not all(host.kernel_pids() for host in rig.hosts.values()):
        if time.monotonic() > deadline:
            without = [host.name for host in rig.hosts.values() if not host.kernel_pids()]
            raise TimeoutError(f"no kernel process on {', '.join(without)} {WHOLE_S:g} s after healing")
        time.sleep(0.1)


def await_committed(count: int) -> None:
    """Return when the log of each host holds all of the state after the cell that was given `count`."""
    deadline = time.monotonic() + COMMITTED_S
    while True:
        known = ask_agents(os.environ).kernels
        applied = {r.raft.applied if r.raft is not None else -1 for kernel in known for r in kernel.replicas}
        counts = [kernel.execution_count for kernel in known]
        if counts and min(counts) >= count and len(applied) == 1:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"a cell after healing was not committed within {COMMITTED_S:g} s: {known}")
        time.sleep(0.1)


def left_behind(directories: list[Path]) -> list[str]:
    """Return the kernel processes and kernels' files that stay after shutdown."""
    deadline = time.monotonic() + ENDED_S
    while (left := _left(directories)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _left(directories: list[Path]) -> list[str]:
    left = []
    for directory in directories:
        left += [f"process {pid}" for pid in kernel_processes(directory)]
        left += [str(path) for path in files_below(directory, "kernels/*/*/*")]
    sockets = Path(os.environ["REPLKERNEL_SOCKET_DIR"]) / "k"
    left += [str(path) for path in sockets.glob("*")]
    return left
