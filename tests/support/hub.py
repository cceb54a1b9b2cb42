"""A real JupyterHub on loopback: its proxy, users without passwords, their servers as processes here.

The proxy is a node program: that in `node_modules` if it is there, else it is installed once below `build`.
Each user has a home, and so agents, of his own. Law: everything that was started ends with the test.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from replkernel.agent.io.socket_places import recorded_root
from replkernel.client.inquiry import agent_names
from tests.support.ending import end_agents
from tests.support.lab import NO_PAGES
from tests.support.ports import free_port
from tests.support.server_life import EXTENSION, Page

ROOT = Path(__file__).parents[2]
PROXY = "configurable-http-proxy"
PROXY_VERSION = "5.3.0"
START_S = 120.0
STOP_S = 60.0

OWN = (
    "HOME",
    "IPYTHONDIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "REPLKERNEL_SOCKET_DIR",
    "XDG_RUNTIME_DIR",
)
"""What a user's server does not get from the hub's environment."""

_CONFIG = """
import os
import sys
sys.path.insert(0, {root!r})
from tests.support.ports import free_port
def keep_port(spawner):
    spawner.port = free_port()  # The spawner would let go of its own before the server has it.
c.Spawner.pre_spawn_hook = keep_port
c.JupyterHub.bind_url = "http://127.0.0.1:{port}/"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.args = {arguments!r}
c.Spawner.http_timeout = 120
c.Spawner.env_keep = [name for name in os.environ if name not in {own!r}]
c.JupyterHub.services = [{{"name": "test", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{
    "name": "test",
    "services": ["test"],
    "scopes": ["admin:users", "admin:servers", "access:servers", "tokens"],
}}]
c.JupyterHub.db_url = "sqlite:///{directory}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{directory}/cookie_secret"
c.ConfigurableHTTPProxy.pid_file = "{directory}/proxy.pid"
c.JupyterHub.cleanup_servers = True
"""


def find_proxy() -> str:
    """Return the proxy's program, installed if need be; raise FileNotFoundError where that cannot be done."""
    for place in (ROOT, ROOT / "build" / "proxy"):
        program = place / "node_modules" / ".bin" / PROXY
        if program.exists():
            return str(program)
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed, so JupyterHub's proxy cannot be")
    place = ROOT / "build" / "proxy"
    program = place / "node_modules" / ".bin" / PROXY
    place.mkdir(parents=True, exist_ok=True)
    with (place.parent / "proxy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two that install at once leave half of a proxy.
        if not program.exists():
            _install_proxy(npm, place, program)
    return str(program)


def _install_proxy(npm: str, place: Path, program: Path) -> None:
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--prefix", str(place)]
    done = subprocess.run(
        [npm, "install", *options, f"{PROXY}@{PROXY_VERSION}"], capture_output=True, text=True, timeout=100
    )
    if not program.exists():
        raise FileNotFoundError(f"npm could not install {PROXY}: {done.stderr[-500:]}")


class Hub:
    """A running hub and its REST API."""

    def __init__(self, port: int, token: str, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.token = token
        self.log = log

    def call(self, method: str, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
        """Return HTTP status and JSON body of a request to the hub, or through it to a user's server."""
        headers = {"Authorization": f"token {token or self.token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error, contextlib.suppress(ValueError):
                return error.code, json.loads(error.read())
            return error.code, None

    def make_token(self, user: str, *scopes: str) -> tuple[str, str]:
        """Return a token of a user with these scopes, as his server would have it, and its id."""
        self.call("POST", f"hub/api/users/{user}")
        status, made = self.call("POST", f"hub/api/users/{user}/tokens", {"scopes": list(scopes)})
        assert status == 201, (status, made)
        return made["token"], made["id"]

    def start_servers(self, *users: str) -> None:
        """Start the servers of these users at once, and wait until each answers."""
        for user in users:
            self.call("POST", f"hub/api/users/{user}")
            status, _ = self.call("POST", f"hub/api/users/{user}/server")
            assert status in (201, 202), f"{status} for {user}'s server:\n{self.log.read_text()[-3000:]}"
        self._await(lambda user: self.call("GET", f"user/{user}/api/sessions")[0] == 200, users)

    def stop_servers(self, *users: str) -> None:
        """Stop the servers of these users at once, and wait until they are gone."""
        for user in users:
            assert self.call("DELETE", f"hub/api/users/{user}/server")[0] in (202, 204)
        self._await(lambda user: not self.call("GET", f"hub/api/users/{user}")[1]["servers"], users)

    def _await(self, done: Any, users: tuple[str, ...]) -> None:
        deadline = time.monotonic() + START_S
        for user in users:
            while not done(user):
                assert time.monotonic() < deadline, f"{user}'s server:\n{self.log.read_text()[-3000:]}"
                time.sleep(0.1)

    def server_ports(self) -> list[int]:
        """Return the port of each user's server that was started, in the order of starts."""
        return [int(port) for port in re.findall(r"/user/\S+ => http://[^/:]+:(\d+)", self.log.read_text())]

    @contextlib.contextmanager
    def page(self, user: str, kernel_id: str, session: str = "page") -> Iterator[Page]:
        """Open a page of a user on a kernel of his."""
        page = Page(f"{self.url}user/{user}/", self.token, kernel_id, session)
        try:
            yield page
        finally:
            page.close()


@contextlib.contextmanager
def hub(directory: Path, more: str = "", *, pages: bool = False) -> Iterator[Hub]:
    """Run a hub in `directory`, the users' homes below it; end it and the users' servers after.

    `more` is what else its configuration says. Servers have JupyterLab where somebody looks at its `pages`.
    """
    proxy = find_proxy()
    homes = directory / "homes"
    homes.mkdir()
    port, token = free_port(), secrets.token_hex(16)
    config = directory / "jupyterhub_config.py"
    config.write_text(
        _CONFIG.format(
            port=port,
            hub_port=free_port(),
            proxy_port=free_port(),
            proxy=proxy,
            python=sys.executable,
            root=str(ROOT),
            homes=str(homes),
            token=token,
            directory=directory,
            arguments=["--allow-root", EXTENSION, *(() if pages else NO_PAGES)],
            own=OWN,
        )
        + more
    )
    log = directory / "hub.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(config)],
            stdout=sink,
            stderr=sink,
            cwd=directory,
            env=os.environ | {"CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(16)},
            start_new_session=True,
        )
    found = Hub(port, token, log)
    try:
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError):
                if found.call("GET", "hub/api/users")[0] == 200:
                    break
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for home in homes.iterdir():
            _end_agents({"HOME": str(home)})


def _end_agents(env: dict[str, str]) -> None:
    roots = [recorded_root(name, env) for name in agent_names(env)]
    end_agents(env)
    for root in filter(None, roots):
        shutil.rmtree(root, ignore_errors=True)
