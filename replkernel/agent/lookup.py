"""Find the agent of a host, or start one: used by routers and the command line.

Light on purpose: the standard library and our settings only. Law: any number of starters at once make
one agent, and whoever cannot have one is told the reason and where the log is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from replkernel.errors import AgentUnavailable
from replkernel.settings import data_dir, socket_dir

LOG_BYTES_MAX = 1024 * 1024
"""An agent's log is put aside (as ``agent.log.1``) when it has grown beyond this."""

REASON_LINES = 8
SOCKET_PATH_BYTES_MAX = 107
_POLL_S = 0.01
_HOST_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READY = b"ready\n"


class AgentAddress(NamedTuple):
    """Where a host's agent listens, and the token that a router presents to it."""

    name: str
    pid: int
    endpoint: str
    token: str
    version: str


def check_host_name(host: str) -> str:
    """Return `host` if it can name an agent (it becomes part of paths), else raise AgentUnavailable."""
    if not _HOST_PATTERN.fullmatch(host):
        raise AgentUnavailable(
            f"The host name {host!r} cannot name an agent: use 1 to 64 letters, digits, '.', '_' or '-' "
            "(settings REPLKERNEL_HOSTS and REPLKERNEL_HOST_NAME)."
        )
    return host


def agent_dir(host: str, env: Mapping[str, str]) -> Path:
    """Return the directory of everything that the agent of `host` keeps on disk."""
    return data_dir(env) / "agents" / check_host_name(host)


def agent_socket_dir(host: str, env: Mapping[str, str]) -> Path:
    """Return the directory of the agent's two sockets; raise AgentUnavailable when its path is too long."""
    directory = socket_dir(env) / check_host_name(host)
    if len(os.fsencode(directory / "kernels.sock")) > SOCKET_PATH_BYTES_MAX:
        raise AgentUnavailable(
            f"The socket directory {directory} is too long for Unix sockets "
            f"({SOCKET_PATH_BYTES_MAX} bytes with the file name): set REPLKERNEL_SOCKET_DIR to a shorter one."
        )
    return directory


def find_agent(host: str, env: Mapping[str, str]) -> AgentAddress | None:
    """Return the address of the live agent of `host`, or None when there is none."""
    try:
        found = json.loads((agent_dir(host, env) / "agent.json").read_text())
        address = AgentAddress(
            str(found["name"]),
            int(found["pid"]),
            str(found["router_endpoint"]),
            str(found["token"]),
            str(found["version"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if _is_alive(address) else None


def _is_alive(address: AgentAddress) -> bool:
    try:
        os.kill(address.pid, 0)
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address.endpoint.removeprefix("ipc://"))
        except OSError:
            return False
    return True


def find_or_start(host: str, env: Mapping[str, str], timeout_s: float = 20.0) -> AgentAddress:
    """Return the address of the agent of `host`, starting one when none is alive.

    `env` becomes the new agent's environment. Raises AgentUnavailable with the reason and the log's path.
    """
    deadline = time.monotonic() + timeout_s
    log = agent_dir(host, env) / "agent.log"
    agent_socket_dir(host, env)
    while True:
        address = find_agent(host, env)
        if address is not None:
            return address
        try:
            with _start_lock(log.parent) as held:
                if held:
                    return find_agent(host, env) or _start(host, env, log, deadline)
        except OSError as error:
            raise AgentUnavailable(
                f"The agent of host {host} cannot be started because {log.parent} cannot be used "
                f"({error}): make it writable, or set JUPYTER_DATA_DIR to a directory that is."
            ) from error
        if time.monotonic() > deadline:
            raise AgentUnavailable(
                f"The agent of host {host} did not answer within {timeout_s:g} s while another process "
                f"was starting it: see {log}."
            )
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _start_lock(directory: Path) -> Iterator[bool]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _start(host: str, env: Mapping[str, str], log: Path, deadline: float) -> AgentAddress:
    start = _open_log(log)
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "replkernel.agent", "--name", host, "--ready-fd", str(write_end)],
            env={name: value for name, value in env.items() if name != "JPY_PARENT_PID"},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=start.fd,
            stderr=start.fd,
            start_new_session=True,
            pass_fds=(write_end,),
        )
    finally:
        os.close(start.fd)
        os.close(write_end)
    try:
        said = _await_ready(read_end, deadline)
    finally:
        os.close(read_end)
    address = find_agent(host, env) if said == _READY else None
    if address is None:
        raise AgentUnavailable(_why_not(host, process, log, start.size, said))
    process.returncode = 0  # It outlives us on purpose: Popen must not warn about it, nor wait for it.
    return address


class _LogStart(NamedTuple):
    fd: int
    size: int


def _open_log(log: Path) -> _LogStart:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return _LogStart(fd, os.fstat(fd).st_size)


def _await_ready(read_end: int, deadline: float) -> bytes:
    """Return what the agent wrote: ``ready``, nothing when it died, or ``late`` when time ran out."""
    poller = select.poll()
    poller.register(read_end, select.POLLIN)
    left_ms = max(0, int((deadline - time.monotonic()) * 1000))
    return os.read(read_end, len(_READY)) if poller.poll(left_ms) else b"late"


def _why_not(host: str, process: subprocess.Popen[bytes], log: Path, start: int, said: bytes) -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    try:
        with log.open("rb") as lines:
            lines.seek(start)
            text = lines.read(64 * 1024).decode(errors="replace")
    except OSError:
        text = ""
    last = " / ".join(line.strip() for line in text.splitlines()[-REASON_LINES:] if line.strip())
    if said == b"late":
        ended = "did not answer in time"
        process.returncode = 0
    else:
        ended = f"ended at once (exit code {process.returncode})"
    return f"The agent of host {host} {ended}: {last or 'it said nothing'}. Its log is {log}."


def stop_agent(host: str, env: Mapping[str, str], timeout_s: float = 15.0) -> bool:
    """End every kernel of the agent of `host`, then the agent; return False when none was alive.

    Raises AgentUnavailable when it is still there after `timeout_s`.
    """
    address = find_agent(host, env)
    if address is None:
        return False
    os.kill(address.pid, signal.SIGUSR1)
    deadline = time.monotonic() + timeout_s
    while find_agent(host, env) is not None:
        if time.monotonic() > deadline:
            raise AgentUnavailable(
                f"The agent of host {host} (process {address.pid}) is still there after {timeout_s:g} s: "
                f"see {agent_dir(host, env) / 'agent.log'}, or end it with kill -9 {address.pid}."
            )
        time.sleep(_POLL_S)
    return True
