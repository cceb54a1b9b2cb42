"""Keeps one host's agent for whoever holds the other end of this process's standard input.

`python -m replkernel_server.launchers.supervisor`, told what to do by one line of JSON on its standard
input. It is the ancestor of all that runs on the host. Laws: when the input or the engine's process ends
(whoever started us died) everything ends at once, as on a host that is lost; on the line `stop` kernels and
agent end in order. An agent that dies is started again, and finds its kernels. Nothing is told in argv.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import psutil

from replkernel.agent.io.lookup import agent_dir, find_agent, stop_agent
from replkernel.agent.io.start import LOCK_HELD, SETTLED, is_host_name
from replkernel.errors import AgentUnavailable
from replkernel.launch.module_command import module_command

PR_SET_CHILD_SUBREAPER = 36
LINE_BYTES_MAX = 64 * 1024
LOOK_S = 0.2
AGAIN_S = 1.0
KILLS_MAX = 100


class Orders(msgspec.Struct, frozen=True):
    """What the agent is started with: its name, the engine's machine, settings, pretended GPUs (0: none).

    `cuda` is what the engine's own processes see of the GPUs; None: all.
    """

    host: str
    machine: str
    settings: dict[str, str]
    pretended: int = 0
    owner: int = 0
    """The engine's process on this host: what it counts here is nothing any more when that ends. 0: none."""
    cuda: str | None = None


def main() -> int:
    """Take the orders, leave the process that started us, and keep the agent until the input ends."""
    orders = msgspec.json.decode(_line(), type=Orders)
    if not is_host_name(orders.host):
        return 2
    if os.fork():  # Engines kill the children of a process that ends: this one is nobody's child.
        os._exit(0)
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ.update(orders.settings)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if orders.cuda is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = orders.cuda
    with contextlib.suppress(KeyboardInterrupt):
        _keep(orders)
    _end_all()
    return 0


def _keep(orders: Orders) -> None:
    directory = agent_dir(orders.host, os.environ)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    agent = _start(orders, directory)
    os.set_blocking(0, False)
    ends = select.poll()
    ends.register(0, select.POLLIN)
    owner = _watched(orders.owner)
    if owner is not None:
        ends.register(owner, select.POLLIN)
    while owner is not None or not orders.owner:
        ready = [descriptor for descriptor, _ in ends.poll(LOOK_S * 1000)]
        said = _said()
        if said == b"" or owner in ready:
            return
        if said is not None and said.strip() == b"stop":
            _stop(orders.host, agent)
            return
        _reap(agent.pid)
        if agent.poll() is not None:
            time.sleep(AGAIN_S)
            if agent.returncode != LOCK_HELD or find_agent(orders.host, os.environ) is None:
                agent = _start(orders, directory)
        if _text(directory / SETTLED) != orders.machine:
            (directory / SETTLED).write_text(f"{orders.machine}\n", encoding="utf-8")


def _watched(owner: int) -> int | None:
    """Return a descriptor of the engine's process; None if it is gone, or there is none."""
    try:
        return os.pidfd_open(owner) if owner else None
    except ProcessLookupError:
        return None


def _start(orders: Orders, directory: Path) -> subprocess.Popen[bytes]:
    pretended = ["--fake-gpus", str(orders.pretended)] if orders.pretended else []
    with open(directory / "agent.log", "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        return subprocess.Popen(
            module_command("replkernel.agent", "--name", orders.host, *pretended, "--stay"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _stop(host: str, agent: subprocess.Popen[bytes]) -> None:
    try:
        stop_agent(host, os.environ)
    except AgentUnavailable:  # It is killed with all others then.
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.wait(1.0)


def _line() -> bytes:
    read = bytearray()
    while not read.endswith(b"\n") and len(read) < LINE_BYTES_MAX and (byte := os.read(0, 1)):
        read += byte
    return bytes(read)


def _said() -> bytes | None:
    """Return what was said: nothing (None) yet, or no bytes once nobody can say anything any more."""
    try:
        return os.read(0, 1024)
    except BlockingIOError:
        return None


def _reap(agent: int) -> None:
    """Let processes that ended after their parents be gone; the agent itself is waited for elsewhere."""
    for child in psutil.Process().children():
        if child.pid != agent:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def _end_all() -> None:
    for _ in range(KILLS_MAX):
        left = psutil.Process().children(recursive=True)
        living = []
        for child in left:
            with contextlib.suppress(psutil.Error):
                if child.status() != psutil.STATUS_ZOMBIE:
                    living.append(child)
        if not living:
            return
        for child in living:
            with contextlib.suppress(psutil.Error):
                child.send_signal(signal.SIGKILL)
        time.sleep(0.02)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    raise SystemExit(main())
