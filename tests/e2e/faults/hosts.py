"""Hosts for a kernel's replicas: a named agent each, where root allows in a network namespace of its own.

Law: a host's agent is started here and by nobody else while its network is separate (the starters' lock is
held), because one that a router starts would be in the router's network.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from replkernel.agent.io.lookup import agent_dir, find_agent
from tests.e2e.faults.wire import Wire, open_tun
from tests.support.files_below import files_below

CLONE_NEWNET = 0x40000000
START_S = 30.0

Made = TypeVar("Made")


def in_thread(work: Callable[[], Made]) -> Made:
    """Run `work` in a thread of its own: what it does to its namespaces ends with it."""
    made: list[Made] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def may_have_networks() -> bool:
    """Tell whether this process may make network namespaces with devices in them."""
    try:
        namespace, device = in_thread(lambda: make_network("127.0.0.9", "probe0"))
    except (OSError, subprocess.CalledProcessError):
        return False
    os.close(device)
    os.close(namespace)
    return True


def make_network(address: str, name: str) -> tuple[int, int]:
    """Make a network namespace with one device in it; return descriptors of both."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a network namespace could not be made")
    device = open_tun(name)
    try:
        for command in (
            f"addr add {address}/24 dev {name}",
            f"link set {name} up mtu 1400",
            "link set lo up",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
    except BaseException:
        os.close(device)
        raise
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC), device


class Host:
    """One named agent, its network and its processes."""

    def __init__(self, name: str, env: Mapping[str, str]) -> None:
        self.name = name
        self.env = dict(env)
        self._namespace: int | None = None
        self._lock: int | None = None
        self._agent: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self.directory = agent_dir(name, self.env)

    def join(self, wire: Wire, address: str) -> None:
        """Give the host a network of its own, in which `address` is its address."""
        self._namespace, device = in_thread(lambda: make_network(address, f"tun-{self.name}"))
        wire.add(self.name, address, device)
        self.env["REPLKERNEL_BIND"] = address

    def hold(self) -> None:
        """Keep everybody else from starting this host's agent."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.directory / "start.lock"
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def start(self) -> None:
        """Start the agent unless it lives, and wait until it listens; as a supervisor does, until it can."""
        deadline = time.monotonic() + START_S
        with self._starting:
            while self.pid() is None:
                if time.monotonic() > deadline:
                    tail = (self.directory / "agent.log").read_text()[-1000:]
                    raise RuntimeError(f"the agent of {self.name} did not start: {tail}")
                if self._agent is None or self._agent.poll() is not None:
                    with open(self.directory / "agent.log", "ab") as log:
                        self._agent = in_thread(partial(self._spawn, log.fileno()))
                time.sleep(0.02)

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        if self._namespace is not None:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(self._namespace, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "the host's network could not be entered")
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "replkernel.agent", "--name", self.name],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def pid(self) -> int | None:
        """Return the process of the agent that listens."""
        found = find_agent(self.name, self.env)
        return None if found is None else found.pid

    def kill_agent(self) -> None:
        """Kill the agent outright."""
        pid = self.pid()
        if pid is not None:
            kill(pid, signal.SIGKILL)
        if self._agent is not None and self._agent.pid == pid:
            self._agent.wait(10)
            self._agent = None

    def kernel_pids(self) -> list[int]:
        """Return the kernel processes of this host, as its replicas' records name them."""
        return kernel_processes(self.directory)

    def keep_logs(self) -> None:
        """Copy the logs of its kernel processes, which go with their kernel."""
        for log in self.directory.glob("kernels/*/*/*/process.log"):
            with contextlib.suppress(OSError):
                shutil.copyfile(log, self.directory / f"process-{log.parent.name}.log")

    def close(self) -> None:
        """Let go of the host; its agent has been ended before."""
        if self._agent is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._agent.wait(10)
        for held in (self._lock, self._namespace):
            if held is not None:
                os.close(held)
        self._lock = self._namespace = None


def kernel_processes(directory: Path) -> list[int]:
    """Return the live kernel processes that the records in an agent's directory name."""
    found = []
    for path in files_below(directory, "kernels/*/*/*/replica.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            pid = int(json.loads(path.read_text())["process"]["pid"])
            if pid and lives(pid):
                found.append(pid)
    return found


def lives(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def kill(pid: int, signum: int) -> bool:
    """Send a signal; return whether the process was there."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return False
    return True
