"""Runs a real Jupyter Server or JupyterLab on a loopback port of the system's choice, as long as a test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

START_S = 60.0
STOP_S = 20.0
TOKEN = "a-token-of-the-tests"
PAGES = ("jupyter_lsp", "jupyterlab", "notebook", "notebook_shim")
NO_PAGES = tuple(f"--ServerApp.jpserver_extensions={name}=False" for name in PAGES)
"""What nobody opens in a browser needs none of these: they ask node and npm for two seconds at each start."""


class Server(NamedTuple):
    """A running server: its address with a slash at the end, its token, its log."""

    url: str
    token: str
    log: Path

    def get(self, path: str, token: str | None = None) -> tuple[int, Any]:
        """Return HTTP status and JSON body (None where there is none) of a GET with `token`, or ours."""
        return self.call("GET", path, token=token)

    def call(self, method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
        """Return HTTP status and JSON body of a request."""
        given = self.token if token is None else token
        headers = {"Authorization": f"token {given}"} if given else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, _parse(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parse(error.read())


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


@contextlib.contextmanager
def running(program: Literal["server", "lab"], directory: Path, *options: str) -> Iterator[Server]:
    """Start `jupyter server` or `jupyter lab` in `directory` with our environment; end it after."""
    log = directory / f"jupyter-{program}.log"
    runtime = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    command = [sys.executable, "-m", f"jupyter{'_server' if program == 'server' else 'lab'}", "--no-browser"]
    command += ["--allow-root", "--ip=127.0.0.1", "--ServerApp.port=0", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={directory}", *options]
    command += NO_PAGES if program == "server" else ()
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=directory, start_new_session=True)
    try:
        yield Server(_await_url(process, runtime, log), TOKEN, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_url(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    deadline = time.monotonic() + START_S
    info = runtime / f"jpserver-{process.pid}.json"
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            url = str(json.loads(info.read_text())["url"])
            with urllib.request.urlopen(f"{url}api", timeout=5):
                return url
        time.sleep(0.1)
    raise AssertionError(f"The server did not start:\n{log.read_text()}")
