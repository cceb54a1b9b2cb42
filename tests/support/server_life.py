"""A real Jupyter Server that a test stops, kills and starts again, and a page that talks to its kernels.

Law: whatever is started through this ends with it; the port stays the same, so that an open page finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websocket

from tests.support.lab import NO_PAGES, START_S, STOP_S, TOKEN, Server
from tests.support.ports import free_port
from tests.support.stock import OURS

CELL_S = 60.0
EXTENSION = "--ServerApp.jpserver_extensions=replkernel_server=True"


class Page:
    """What a browser's page is to a kernel: a websocket of one session at the server."""

    def __init__(self, url: str, token: str, kernel_id: str, session: str) -> None:
        self.session = session
        self._socket = websocket.create_connection(
            f"{url.replace('http', 'ws', 1)}api/kernels/{kernel_id}/channels?session_id={session}",
            header=[f"Authorization: token {token}"],
            timeout=CELL_S,
        )

    def send(self, code: str, gpus: int = 0, cell: str = "") -> str:
        """Have a cell run, on so many GPUs; return the request's id. `cell` is the cell's own id."""
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id,
            "session": self.session,
            "username": "",
            "msg_type": "execute_request",
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = {
            "header": header,
            "parent_header": {},
            "metadata": ({"replkernel": {"gpus": gpus}} if gpus else {}) | ({"cellId": cell} if cell else {}),
            "content": content,
            "channel": "shell",
        }
        self._socket.send(json.dumps(message))
        return msg_id

    def run(self, code: str, within_s: float = CELL_S, gpus: int = 0) -> str:
        """Run a cell that must succeed; return what it printed."""
        content, printed = self.answer(self.send(code, gpus), within_s)
        assert content["status"] == "ok", content
        return printed

    def fail(self, code: str, within_s: float = CELL_S, gpus: int = 0) -> str:
        """Run a cell that must fail; return its error's value."""
        content, _ = self.answer(self.send(code, gpus), within_s)
        assert content["status"] == "error", content
        return str(content["evalue"])

    def answer(self, msg_id: str, within_s: float) -> tuple[dict[str, Any], str]:
        """Return the content of a cell's reply, and what it printed on stdout, once it is idle."""
        deadline = time.monotonic() + within_s
        printed: list[str] = []
        reply: dict[str, Any] = {}
        missing = {"execute_reply", "idle"}
        while missing:
            assert time.monotonic() < deadline, f"the cell did not end within {within_s:g} s: {printed}"
            kind, data = self._socket.recv_data(control_frame=True)
            if kind != websocket.ABNF.OPCODE_TEXT:
                continue
            message = json.loads(data)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                printed.append(content["text"])
            if message["msg_type"] == "execute_reply":
                reply = content
            missing -= {message["msg_type"], content.get("execution_state")}
        return reply, "".join(printed).strip()

    def close(self) -> None:
        """Close the page."""
        self._socket.close()


class ServerLife:
    """One `jupyter server` on one port; `directory` is its root."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.log = directory / f"server-{self._port}.log"
        self.server = Server(f"http://127.0.0.1:{self._port}/", TOKEN, self.log)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"]
        command += ["--ip=127.0.0.1", f"--ServerApp.port={self._port}", "--ServerApp.port_retries=0"]
        command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self._directory}", EXTENSION]
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(
                [*command, *NO_PAGES, *self._options],
                stdout=sink,
                stderr=sink,
                cwd=self._directory,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                if self.server.get("api/sessions")[0] == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"The server did not start:\n{self.log.read_text()}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal, if it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"The server did not stop:\n{self.log.read_text()}") from None

    def restart(self, how: signal.Signals) -> None:
        """End it by a signal and start it again."""
        self.stop(how)
        self.start()

    def open_notebook(self, name: str) -> dict[str, Any]:
        """Make a session of a replicated kernel, as a page does that opens a notebook; return its model."""
        kernel = {"name": OURS}
        body = {"path": name, "name": name, "type": "notebook", "kernel": kernel}
        status, model = self.server.call("POST", "api/sessions", body)
        assert status == 201, (status, model)
        return dict(model)

    def sessions(self) -> list[tuple[str, str, str]]:
        """Return session id, path and kernel id of each session, as a page that reconnects sees them."""
        status, models = self.server.get("api/sessions")
        assert status == 200
        return [(model["id"], model["path"], model["kernel"]["id"]) for model in models]

    @contextlib.contextmanager
    def page(self, kernel_id: str, session: str = "page") -> Iterator[Page]:
        """Open a page on a kernel."""
        page = Page(self.server.url, TOKEN, kernel_id, session)
        try:
            yield page
        finally:
            page.close()

    def end_kernels(self) -> None:
        """End every kernel of the server, as its user may."""
        for model in self.server.get("api/kernels")[1]:
            self.server.call("DELETE", f"api/kernels/{model['id']}")


@contextlib.contextmanager
def living(directory: Path, *options: str) -> Iterator[ServerLife]:
    """Start a server in `directory`; end it and its kernels after."""
    life = ServerLife(directory, *options)
    try:
        life.start()
        try:
            yield life
        finally:
            with contextlib.suppress(OSError):
                life.end_kernels()
    finally:
        life.stop()


def record_path(kernel_id: str) -> Path:
    """Return where a kernel's record is."""
    return Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "kernels" / kernel_id / "kernel.json"
