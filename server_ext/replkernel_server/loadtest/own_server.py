"""`--start`: a Jupyter Server of the test's own, with its agents, in a temporary directory.

Law: everything that was started ends with the block, and the directory goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from replkernel.agent.io.lookup import stop_agent
from replkernel.agent.io.socket_places import GIVEN, recorded_root
from replkernel.client.inquiry import agent_names
from replkernel.errors import AgentUnavailable
from replkernel.launch.module_command import module_command
from replkernel_server.loadtest.errors import LoadTestError

START_S, STOP_S = 60.0, 60.0
LINES_TOLD = 8
LOG = "server.log"
PLACES = {"JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "run", "XDG_RUNTIME_DIR": "x"}
"""What lies in its directory. Sockets do where their paths are short enough; else the agents choose."""
NOT_OURS = ("REPLKERNEL_HOSTS", "REPLKERNEL_SCHEDULER_URL", "REPLKERNEL_STORE", GIVEN)
"""Settings that name others: a server of one's own has hosts, scheduler, store and sockets of its own."""


class OwnServer(msgspec.Struct, frozen=True):
    """A server that was started here."""

    url: str
    token: str
    pid: int
    env: dict[str, str]


@contextlib.asynccontextmanager
async def own_server(replicas: int, fake_gpus: int) -> AsyncIterator[OwnServer]:
    """Start one and end it; raise LoadTestError if it does not start."""
    root = Path(tempfile.mkdtemp(prefix="rkl-"))
    env = _environment(root, replicas, fake_gpus)
    token = env["JUPYTER_TOKEN"]
    process = _begin(root, env)
    try:
        url = await _url(process, Path(env["JUPYTER_RUNTIME_DIR"]), root / LOG)
        yield OwnServer(url, token, process.pid, env)
    finally:
        await asyncio.shield(asyncio.to_thread(_end, process, env, root))


def _begin(root: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (root / LOG).open("wb") as sink:
        return subprocess.Popen(
            _command(root), stdout=sink, stderr=sink, cwd=root, env=env, start_new_session=True
        )


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LINES_TOLD:]
    return " / ".join(lines) or "it said nothing"


def _environment(root: Path, replicas: int, fake_gpus: int) -> dict[str, str]:
    own = {variable: str(root / name) for variable, name in PLACES.items()}
    for directory in own.values():
        Path(directory).mkdir(mode=0o700)
    given = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    settings = {"REPLKERNEL_REPLICAS": str(replicas), "REPLKERNEL_LAUNCHER_GRACE_S": "0"}
    if fake_gpus:
        settings["REPLKERNEL_FAKE_GPUS"] = str(fake_gpus)
    return given | own | settings | {"JUPYTER_TOKEN": secrets.token_hex(16)}


def _command(root: Path) -> list[str]:
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": "0",
        "ServerApp.port_retries": "0",
        "ServerApp.root_dir": str(root),
        "ServerApp.jpserver_extensions": "replkernel_server=True",
        "ReplkernelExtension.keep_kernels": "False",
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    return module_command("jupyter_server", "--no-browser", "--allow-root", *given)


async def _url(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    info = runtime / f"jpserver-{process.pid}.json"
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            url = str(json.loads(info.read_text())["url"])
            reader_writer = await asyncio.open_connection(*_address(url))
            reader_writer[1].close()
            return url
        await asyncio.sleep(0.1)
    raise LoadTestError(f"The Jupyter Server of --start did not come up: {_last_lines(log)}")


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    return host, int(port)


def _end(process: subprocess.Popen[bytes], env: Mapping[str, str], root: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    names = agent_names(env)
    sockets = [Path(place) for place in {recorded_root(name, env) for name in names} if place]
    for name in names:
        with contextlib.suppress(AgentUnavailable):
            stop_agent(name, env)
    for directory in (root, *sockets):
        shutil.rmtree(directory, ignore_errors=True)
