"""Find the agent of a host, or start one: used by routers and the command line.

Light on purpose: the standard library and our places only. Law: any number of starters at once make
one agent, and whoever cannot have one is told the reason and where the log is.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from replkernel.agent.io.socket_places import check_given, check_listener, check_near
from replkernel.agent.io.start import (
    JOB_ON_CORES,
    READY,
    TAKEN,
    Start,
    agent_holds_lock,
    begin,
    engine_of,
    is_host_name,
    lives_elsewhere,
)
from replkernel.errors import UNREADABLE, AgentUnavailable
from replkernel.hosts.own_file import read_own
from replkernel.hosts.places import FAR, agent_place, given_address, own_host, this_machine

REASON_LINES = 8
ROOM_BYTES_MIN = 16 * 1024
"""An agent that has less room on its disk can neither write its file nor say so in its log."""

FILE_BYTES_MAX = 16 * 1024
"""No agent's file is longer."""

FAR_WAIT_S = 3.0
"""An agent on another machine that takes no connection within this is not there for now."""

START_S = 60.0
"""So long may an agent take to come up: from a cold disk, or among many that start, imports take long."""

SILENT_S = 20.0
"""Somebody else's agent that answers nobody for so long is stuck, or does not come up."""

_POLL_S = 0.01


class AgentAddress(NamedTuple):
    """Where a host's agent listens, and the token that a router presents to it."""

    name: str
    pid: int
    endpoint: str
    token: str
    version: str

    @property
    def far(self) -> bool:
        """Tell whether it is on another machine."""
        return self.endpoint.startswith(FAR)


def check_host_name(host: str) -> str:
    """Return `host` if it can name an agent (it becomes part of paths), else raise AgentUnavailable."""
    if not is_host_name(host):
        raise AgentUnavailable(
            f"The host name {host!r} cannot name an agent: use 1 to 64 letters, digits, '.', '_' or '-' "
            "(settings REPLKERNEL_HOSTS and REPLKERNEL_HOST_NAME)."
        )
    return host


def agent_dir(host: str, env: Mapping[str, str]) -> Path:
    """Return the directory of everything that the agent of `host` keeps on disk."""
    return Path(agent_place(check_host_name(host), env))


def find_agent(host: str, env: Mapping[str, str]) -> AgentAddress | None:
    """Return the address of the live agent of `host`, or None when there is none.

    One on another machine is taken at its word: `reaches` tells whether it can be reached. Raises
    AgentUnavailable for one on this machine in whose place somebody else could listen.
    """
    directory = agent_dir(host, env)
    try:
        found = json.loads(read_own(directory / "agent.json", FILE_BYTES_MAX))
        far = str(found.get("far_endpoint", ""))
        is_far = bool(far) and found.get("machine") != this_machine()
        address = AgentAddress(
            str(found["name"]),
            int(found["pid"]),
            far if is_far else str(found["router_endpoint"]),
            str(found["token"]),
            str(found["version"]),
        )
    except (OSError, *UNREADABLE, KeyError, TypeError, AttributeError):
        return _given_agent(host, env)
    if address.far or _is_alive(address):
        return address
    return _given_agent(host, env)


def _given_agent(host: str, env: Mapping[str, str]) -> AgentAddress | None:
    """Return the agent that the settings name with its address: its keys follow from the hosts' secret."""
    place = given_address(host, env)
    if not place:
        return None
    from replkernel.hosts.far_sockets import far_endpoint
    from replkernel.hosts.hosts_secret import agent_keys, agent_token, read_secret, secret_file

    secret = read_secret(env)
    if secret is None:
        raise AgentUnavailable(
            f"Host {host} is to be found at {place} (REPLKERNEL_HOSTS), but there is no secret that it would "
            f"know us by: put the hosts' common one into {secret_file(env)} (REPLKERNEL_HOSTS_SECRET_FILE)."
        )
    name, _, port = place.rpartition(":")
    endpoint = far_endpoint(name.strip("[]"), int(port), agent_keys(secret, host).public)
    return AgentAddress(host, 0, endpoint, agent_token(secret, host), "")


def reaches(address: AgentAddress, timeout_s: float = FAR_WAIT_S) -> str:
    """Return in a clause why an agent cannot be reached; nothing if it can, or is on this machine."""
    if not address.far:
        return ""
    name, _, port = address.endpoint.removeprefix(FAR).rpartition("/")[0].rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), int(port)), timeout_s).close()
    except (OSError, ValueError) as error:
        return f"{name}:{port} cannot be reached ({getattr(error, 'strerror', None) or error})"
    return ""


def _is_alive(address: AgentAddress) -> bool:
    try:
        os.kill(address.pid, 0)
    except OSError:
        return False
    check_near(address.endpoint)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.endpoint.removeprefix("ipc://"))
        except BlockingIOError:
            return True  # It listens, but has not taken up those who came before us.
        except OSError:
            return False
        check_listener(probe, address.endpoint)
    return True


def find_or_start(
    host: str, env: Mapping[str, str], timeout_s: float | None = None, begun: Start | None = None
) -> AgentAddress:
    """Return the address of the agent of `host`, starting one when none is alive.

    `env` becomes the new agent's environment; `begun` is a start that is under way already. Within
    `timeout_s`, or else START_S for an agent that is started here, and SILENT_S for another one.
    Raises AgentUnavailable with the reason and the log's path.
    """
    started, waits_s = time.monotonic(), timeout_s or SILENT_S
    directory = agent_dir(host, env)
    check_given(host, env)
    elsewhere = lives_elsewhere(host, env)
    while True:
        if begun is None:
            address = find_agent(host, env)
            trouble = "" if address is None else reaches(address)
            if address is not None and not trouble:
                return address
            if elsewhere or (trouble and host != own_host(env)):
                raise AgentUnavailable(_not_there(host, elsewhere, trouble, engine_of(host, env)))
        if begun is None and env.get(JOB_ON_CORES):
            raise AgentUnavailable(
                f"The agent of host {host} does not run, and a job without GPUs starts none, for that would "
                "have its low priority: start a kernel there, or `replkernel agent`, outside the job."
            )
        try:
            start = begun or begin(host, env)
        except OSError as error:
            raise AgentUnavailable(
                f"The agent of host {host} cannot be started because {directory} cannot be used "
                f"({error}): make it writable, or set JUPYTER_DATA_DIR to a directory that is."
            ) from error
        begun = None
        if start is not None:
            _see_through(start, started + (timeout_s or START_S))
        elif time.monotonic() > started + waits_s:
            raise AgentUnavailable(_who_is_in_the_way(host, env, directory, waits_s))
        else:
            time.sleep(_POLL_S)


def _not_there(host: str, elsewhere: str, trouble: str, engine: str) -> str:
    why = f": {trouble}" if trouble else ""
    if engine:
        return f"The agent of host {host} does not answer{why}. {engine} starts it, and nobody else."
    because = f", for {elsewhere}" if elsewhere else ""
    return (
        f"The agent of host {host} does not answer{why}. It is not started from this machine{because}: start "
        f"it on its own with `replkernel agent --name {host} --bind ADDRESS`, and let its ports through."
    )


def _see_through(start: Start, deadline: float) -> None:
    """Wait until an agent that we started listens, or finds that there is one.

    Raises AgentUnavailable when it ended for another reason, or time ran out.
    """
    try:
        said = _await_ready(start.said, deadline)
    finally:
        start.close()
    if said not in (READY, TAKEN):
        raise AgentUnavailable(_why_not(start, late=bool(said)))


def _await_ready(read_end: int, deadline: float) -> bytes:
    """Return what the agent wrote: ``ready``, ``taken``, nothing when it died; ``late`` when time ran out."""
    poller = select.poll()
    poller.register(read_end, select.POLLIN)
    left_ms = max(0, int((deadline - time.monotonic()) * 1000))
    return os.read(read_end, len(READY)) if poller.poll(left_ms) else b"late"


def _why_not(start: Start, *, late: bool) -> str:
    try:
        with open(start.log, "rb") as lines:
            lines.seek(start.log_start)
            text = lines.read(64 * 1024).decode(errors="replace")
    except OSError:
        text = ""
    last = " / ".join(line.strip() for line in text.splitlines()[-REASON_LINES:] if line.strip())
    if not last and _is_full(start.log):
        return (
            f"The agent of host {start.host} cannot start because the disk of {start.log} is full: free some "
            "space there, or set JUPYTER_DATA_DIR to a directory on another one."
        )
    ended = "did not answer in time" if late else "ended at once"
    return f"The agent of host {start.host} {ended}: {last or 'it said nothing'}. Its log is {start.log}."


def _is_full(path: str) -> bool:
    """Tell whether nothing can be written beside `path`, so that nobody could say why either."""
    try:
        disk = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < ROOM_BYTES_MIN


def _who_is_in_the_way(host: str, env: Mapping[str, str], directory: Path, timeout_s: float) -> str:
    log = directory / "agent.log"
    if not agent_holds_lock(host, env):
        return (
            f"The agent of host {host} did not answer within {timeout_s:g} s while another process "
            f"was starting it: see {log}."
        )
    with contextlib.suppress(OSError, ValueError):
        pid = int((directory / "agent.lock").read_text())
        return (
            f"The agent of host {host}, process {pid}, runs but has not answered for {timeout_s:g} s: "
            f"end it with `kill -9 {pid}`, the next kernel then starts another; its log is {log}."
        )
    return (
        f"A process holds {directory / 'agent.lock'} but no agent of host {host} has answered for "
        f"{timeout_s:g} s: end that process; the agent's log is {log}."
    )


def stop_agent(host: str, env: Mapping[str, str], timeout_s: float = 15.0) -> bool:
    """End every kernel of the agent of `host`, then the agent; return False when none was alive.

    Raises AgentUnavailable when it is still there after `timeout_s`.
    """
    address = find_agent(host, env)
    if address is None:
        return False
    if address.far:
        raise AgentUnavailable(
            f"The agent of host {host} is on another machine: run `replkernel agent stop {host}` there."
        )
    try:
        process = os.pidfd_open(address.pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(process, signal.SIGUSR1)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        if not ended.poll(int(timeout_s * 1000)):
            raise AgentUnavailable(
                f"The agent of host {host} (process {address.pid}) is still there after {timeout_s:g} s: "
                f"see {agent_dir(host, env) / 'agent.log'}, or end it with kill -9 {address.pid}."
            )
    finally:
        os.close(process)
    return True
