"""Ends the agents that an environment's kernels have, wherever they run."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from replkernel.agent.io.lookup import find_agent, stop_agent
from replkernel.client.inquiry import agent_names
from replkernel.errors import AgentUnavailable

STOP_S = 30.0
LOOK_S = 0.05
NEWS_S = 0.5
"""The news of a death takes this long at most to whom it concerns."""


def end_agents(env: Mapping[str, str]) -> None:
    """End every kernel and every agent, also one that is still starting though its router has gone."""
    deadline = time.monotonic() + STOP_S
    _end_listening(env)
    while _is_starting(env) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        _end_listening(env)


def end_process(pid: int, signum: int = signal.SIGKILL, timeout_s: float = 15.0) -> None:
    """Send a signal to a process that need not be a child of ours, and wait until it has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signum)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        assert ended.poll(timeout_s * 1000), f"process {pid} has not ended"
    finally:
        os.close(process)


def lives(process: psutil.Process) -> bool:
    """Tell whether this very process runs, whoever has its number by now."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def lose(*pids: int) -> None:
    """Kill processes, and give their router time to hear of it: a cell on its way to one is lost with it."""
    for pid in pids:
        end_process(pid)
    time.sleep(NEWS_S)


def end_schedulers(directory: Path) -> None:
    """End the schedulers that one test's notebooks have started: they would wait for others for minutes."""
    for pid, environ in _running(b"replkernel_server.service"):
        if f"{directory}/".encode() in environ:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _is_starting(env: Mapping[str, str]) -> bool:
    mark = f"JUPYTER_DATA_DIR={env.get('JUPYTER_DATA_DIR', '')}".encode()
    return any(mark in environ.split(b"\0") for _, environ in _running(b"replkernel.agent"))


def _running(module: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield who runs a module, and its environment."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if module + b"\0" in (process / "cmdline").read_bytes():
                yield int(process.name), (process / "environ").read_bytes()


def _end_listening(env: Mapping[str, str]) -> None:
    """End the agents that listen; one on another machine by the command that ends it there."""
    commands = []
    for name in agent_names(env):
        with contextlib.suppress(AgentUnavailable):
            address = find_agent(name, env)
            if address is not None and address.far:
                command = [sys.executable, "-m", "replkernel.cli", "agent", "stop", name]
                commands.append(subprocess.Popen(command, env=dict(env), stdout=subprocess.DEVNULL))
            else:
                stop_agent(name, env)
    for command in commands:
        command.wait(STOP_S)
