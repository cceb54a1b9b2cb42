"""What the measurements of survival share: cells that may fail, processes by host, the state of commits.

Law: a process is killed only when a record or a cell of this measurement's own kernel names it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from replkernel.agent.io.lookup import agent_dir, find_agent
from replkernel.client.inquiry import ask_agents
from tests.bench.kernels import Kernel, Place
from tests.e2e.faults.hosts import kernel_processes, lives

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Cell:
    """One cell's end: status, error, what it printed, seconds until its reply."""

    status: str
    error: str
    printed: str
    seconds: float


def run(kernel: Kernel, code: str) -> Cell:
    """Run a cell to its end, whatever that is."""
    began = time.perf_counter()
    request = kernel.client.execute(code)
    return finish(kernel, request, began)


def finish(kernel: Kernel, request: str, began: float) -> Cell:
    """Wait for the end of a cell that was sent."""
    deadline = time.perf_counter() + PATIENCE_S
    content, took = None, 0.0
    while content is None:
        with contextlib.suppress(queue.Empty):
            reply = kernel.client.get_shell_msg(timeout=1.0)
            if reply["parent_header"].get("msg_id") == request:
                content, took = reply["content"], time.perf_counter() - began
        if time.perf_counter() > deadline:
            raise TimeoutError(f"a cell was not answered within {PATIENCE_S:g} s")
    error = f"{content['ename']}: {content['evalue']}" if "ename" in content else ""
    return Cell(content["status"], error, _printed(kernel, request), took)


def _printed(kernel: Kernel, request: str) -> str:
    printed = ""
    with contextlib.suppress(queue.Empty):
        while True:
            message = kernel.client.get_iopub_msg(timeout=2.0)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
                printed += message["content"]["text"]
            if message["content"].get("execution_state") == "idle":
                break
    return printed.strip()


def value(kernel: Kernel, code: str) -> str:
    """Run a cell that must succeed; return what it printed."""
    cell = run(kernel, code)
    if cell.status != "ok":
        raise RuntimeError(f"{code!r} failed: {cell.error}")
    return cell.printed


def kill(pid: int) -> None:
    """Kill a process outright and wait until it is dead."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while lives(pid):
        time.sleep(0.0005)


def processes_of(host: str, where: Place) -> list[int]:
    """Return the kernel processes of a host."""
    return kernel_processes(Path(agent_dir(host, where.env)))


def kill_host(host: str, where: Place) -> None:
    """Kill a host's agent and its kernel processes outright."""
    pids = processes_of(host, where)
    agent = find_agent(host, where.env)
    for pid in [*([agent.pid] if agent is not None else []), *pids]:
        kill(pid)


def committed(where: Place, cells: int) -> bool:
    """Tell whether the log of every kernel here holds so many cells."""
    kernels = ask_agents(where.env).kernels
    return bool(kernels) and all(kernel.execution_count >= cells for kernel in kernels)


def whole(where: Place, replicas: int = 3) -> bool:
    """Tell whether all replicas have a process and the same log."""
    found = [replica for kernel in ask_agents(where.env).kernels for replica in kernel.replicas]
    applied = {replica.raft.applied if replica.raft is not None else -1 for replica in found}
    alive = all(replica.kernel_pid and lives(replica.kernel_pid) for replica in found)
    return len(found) == replicas and alive and len(applied) == 1


def await_true(holds: Callable[[], bool], what: str) -> float:
    """Return the seconds until `holds`; TimeoutError by the name of `what` when that takes too long."""
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > PATIENCE_S:
            raise TimeoutError(f"{what} did not come true within {PATIENCE_S:g} s")
        time.sleep(0.02)
    return time.perf_counter() - began
