"""A real browser for tests, and a JupyterLab that can be killed and started again on the same port.

Law: neither outlives its test.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build" / "ui"
BESIDE = ROOT / "build" / "beside"
"""Where `make ui` installs others' extensions: in the environment, all tests would have them."""
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
PANEL = "#jp-replkernel-sidebar"
TOKEN = "a-token-of-the-tests"
START_S = 60.0
ANSWER_S = 120.0
IN_BROWSER = [
    pytest.mark.ui,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"
    ),
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
]
"""The marks of a test that needs one."""


class Lab:
    """A JupyterLab (or a Notebook, or `make run`) on a port of its own, with a token that stays the same."""

    def __init__(self, directory: Path, *program: str) -> None:
        self.directory = directory
        self._program = program or ("-m", "jupyterlab")
        self.log = directory / "lab.log"
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = int(probe.getsockname()[1])

    @property
    def pid(self) -> int | None:
        """Return its process; None while it is down."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers; nobody is asked whether to fetch news of Jupyter."""
        refuse_news()
        command = [sys.executable, *self._program, "--no-browser", "--allow-root", "--ip=127.0.0.1"]
        command += [f"--ServerApp.port={self._port}", "--ServerApp.port_retries=0"]
        command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self.directory}"]
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(
                command, stdout=sink, stderr=sink, cwd=self.directory, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url('api')}", timeout=5):
                return
            time.sleep(0.1)
        raise AssertionError(f"JupyterLab did not start:\n{self.log.read_text()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it with a signal."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal and do not wait."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def address(self) -> str:
        """Return where it listens, with a slash at the end."""
        return f"http://127.0.0.1:{self._port}/"

    def url(self, path: str) -> str:
        """Return the address of a page or an API, token included."""
        return f"{self.address}{path}?token={TOKEN}"

    def call(self, method: str, path: str) -> Any:
        """Ask the server's API; None where the answer has no body."""
        request = urllib.request.Request(self.url(path), method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if body else None


def settings(plugin: str, **said: object) -> None:
    """Write what a person has set in JupyterLab's settings."""
    place = Path(os.environ["JUPYTER_CONFIG_DIR"], "lab", "user-settings", plugin)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".jupyterlab-settings").write_text(json.dumps(said))


def refuse_news() -> None:
    """Have nobody asked whether to fetch news of Jupyter."""
    settings("@jupyterlab/apputils-extension/notification", fetchNews="false")


class Browser:
    """A real Chromium; each method does what a person would do, or reads what a person would see."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(ROOT / "tests/ui/browser.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._answer()

    @property
    def lasting(self) -> tuple[int, int | None]:
        """Return its process and its thread."""
        return self._process.pid, self._reader.ident

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def _answer(self) -> Any:
        try:
            reply = json.loads(self._lines.get(timeout=ANSWER_S))
        except Empty:
            raise AssertionError("the browser does not answer") from None
        assert "failure" not in reply, reply["failure"]
        return reply["answer"]

    def do(self, command: str, page: str, **details: object) -> Any:
        """Have a command carried out and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, "page": page, **details}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def cells(self, page: str) -> list[dict[str, Any]]:
        """Return the prompt and the outputs of each code cell."""
        found: list[dict[str, Any]] = self.do("cells", page)
        return found

    def text(self, page: str, cell: int = 1) -> str:
        """Return what stands below a cell."""
        return "".join(self.cells(page)[cell - 1]["outputs"])

    def prompt(self, page: str, cell: int = 1) -> str:
        """Return a cell's prompt: `[3]:`, `[*]:` or `[ ]:`."""
        return str(self.cells(page)[cell - 1]["prompt"])

    def line(self, page: str, cell: int = 1) -> str:
        """Return what the line under a cell says; nothing where there is none."""
        return str(self.do("lines", page)[cell - 1])

    def wait(self, page: str, seen: Callable[[], bool], patience: float = 60.0) -> None:
        """Wait until something is seen; fail with what is seen instead."""
        deadline = time.monotonic() + patience
        while not seen():
            if time.monotonic() > deadline:
                SHOTS.mkdir(parents=True, exist_ok=True)
                self.do("screenshot", page, path=str(SHOTS / "last.png"))
                raise AssertionError(f"{self.cells(page)}; {SHOTS / 'last.png'} shows the page")
            time.sleep(0.2)

    def end(self) -> None:
        """Close it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def lab_in_browser(directory: Path, *program: str) -> Iterator[tuple[Lab, Browser]]:
    """Run JupyterLab and a browser; end both, and the kernels, after."""
    lab = Lab(directory, *program)
    lab.start()
    try:
        browser = Browser()
        try:
            yield lab, browser
        finally:
            browser.end()
    finally:
        with contextlib.suppress(OSError):
            for kernel in lab.call("GET", "api/kernels"):
                lab.call("DELETE", f"api/kernels/{kernel['id']}")
        lab.stop()


def write_notebook(path: Path, kernel: str, *sources: str, gpus: int = 0) -> None:
    """Write a notebook with code cells that have ids and no outputs; each asks for so many GPUs."""
    metadata = {"replkernel": {"gpus": gpus}} if gpus else {}
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": metadata,
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(sources, 1)
    ]
    kernelspec = {"name": kernel, "display_name": kernel, "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernelspec}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


def panel(browser: Browser) -> str:
    """Return what the panel *GPUs and replicas* says in page `a`."""
    return " ".join(browser.do("text", "a", query=PANEL))
