"""A real JupyterHub whose users share GPUs: the scheduler is its service, set up by the one line.

Law: users, groups and quotas are those below; everything ends with the test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import hub as running
from tests.support.live import eventually
from tests.support.ports import free_port
from tests.support.stock import OURS

AGENTS_TOKEN = "a-token-of-the-agents-of-the-tests"
USING = ("access:services!service=replkernel", "custom:replkernel:lease")
ADMIN = "root-of-hub"
HOSTS = ("one", "two")
SPAWNED = """
c.Spawner.environment |= {"REPLKERNEL_HOSTS": "one,two", "REPLKERNEL_REPLICAS": "2"}
"""
"""Configuration with which users' kernels have a replica on each of HOSTS."""
START_S = 60.0
_CONFIG = """
c.JupyterHub.load_groups = {{
    "gpu-users": {{"users": ["alice", "bob"], "properties": {{"gpu_quota": 12}}}},
    "small": {{"users": ["carol"], "properties": {{"gpu_quota": 4, "priority": 1}}}},
}}
c.Authenticator.admin_users = {{{admin!r}}}
from replkernel_server.hub import setup_replkernel
setup_replkernel(
    c,
    groups=["gpu-users", "small"],
    agents_token={agents_token!r},
    address="http://127.0.0.1:{port}",
    environment={{"JUPYTER_DATA_DIR": {data!r}}},
)
"""


class SharedHub:
    """A hub and the scheduler behind its proxy."""

    def __init__(self, found: running.Hub, data: Path) -> None:
        self.running = found
        self.data = data
        self.journal = data.parent / "replkernel-scheduler.sqlite"
        self.url = f"{found.url}services/replkernel"
        self._tokens: dict[str, str] = {}

    def token(self, user: str) -> str:
        """Return a token like that of the user's server."""
        if user not in self._tokens:
            scopes = (USING[0], "admin:servers") if user == ADMIN else USING
            self._tokens[user] = self.running.make_token(user, *scopes)[0]
        return self._tokens[user]

    def ask(self, token: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return what the scheduler's REST answers, through the proxy."""
        return self.running.call(method, f"services/replkernel/api/v1/{path}", body, token)

    def kill_scheduler(self) -> None:
        """End the service's process as a power cut would; the Hub starts it again after some seconds."""
        place = f"JUPYTER_DATA_DIR={self.data}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                program = (process / "cmdline").read_bytes().split(b"\0")
                if b"replkernel_server.hub_service" in program and place in (
                    process / "environ"
                ).read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    return
        raise AssertionError("there is no scheduler to kill")

    def open_notebook(self, user: str, number: int) -> str:
        """Make a session of a replicated kernel at a user's server; return the kernel's id."""
        path = f"{number}.ipynb"
        body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": OURS}}
        status, model = self.running.call("POST", f"user/{user}/api/sessions", body)
        assert status == 201, (status, model)
        return str(model["kernel"]["id"])


def start_agent(hub: SharedHub, directory: Path, host: str, gpus: int) -> subprocess.Popen[bytes]:
    """Start the administrator's agent of a host, which offers its GPUs."""
    own = {"JUPYTER_DATA_DIR": str(directory), "REPLKERNEL_SCHEDULER_URL": hub.url}
    command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", host, "--fake-gpus", str(gpus)]
    env = {name: value for name, value in os.environ.items() if name != "REPLKERNEL_SOCKET_DIR"}
    return subprocess.Popen(command, env=env | own | {"REPLKERNEL_SCHEDULER_TOKEN": AGENTS_TOKEN})


@contextlib.contextmanager
def offering(hub: SharedHub, directory: Path, host: str, gpus: int) -> Iterator[None]:
    """Run the administrator's agent of a host, which offers its GPUs."""
    agent = start_agent(hub, directory, host, gpus)
    try:
        eventually(lambda: host in str(hub.ask(AGENTS_TOKEN, "GET", "status")[1]), f"the GPUs of {host}")
        yield
    finally:
        agent.terminate()
        agent.wait(30)


@contextlib.contextmanager
def shared_hub(directory: Path, more: str = "", *, pages: bool = False) -> Iterator[SharedHub]:
    """Run it in `directory`, and wait until the scheduler answers."""
    data = directory / "scheduler"
    config = _CONFIG.format(admin=ADMIN, agents_token=AGENTS_TOKEN, port=free_port(), data=str(data))
    with running.hub(directory, config + more, pages=pages) as found:
        shared = SharedHub(found, data)
        deadline = time.monotonic() + START_S
        while shared.ask(AGENTS_TOKEN, "GET", "status")[0] != 200:
            assert time.monotonic() < deadline, found.log.read_text()[-5000:]
            time.sleep(0.2)
        yield shared
