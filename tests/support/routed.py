"""A router that a test starts, kills and starts again on the same ports, and clients that come and go.

Law: whatever was started here is ended by `close`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
from jupyter_client import BlockingKernelClient

from tests.support.ending import end_agents
from tests.support.ports import free_port

PORTS = ("shell_port", "stdin_port", "control_port", "iopub_port", "hb_port")
WAIT_S = 60.0


class Client:
    """One page: its session stays, its sockets may be closed and opened again. What it was sent is kept."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._session: Any = None
        self.published: list[dict[str, Any]] = []
        self.replies: list[dict[str, Any]] = []
        self.open()

    def open(self) -> None:
        """Open the sockets, with the same identity as before."""
        options = {} if self._session is None else {"session": self._session}
        self.kernel = BlockingKernelClient(connection_file=str(self._file), **options)
        self.kernel.load_connection_file()
        self._session = self.kernel.session
        self.kernel.start_channels(hb=False)

    def close(self) -> None:
        """Close the sockets, once what has arrived has been taken."""
        self.take(0.05)
        self.kernel.stop_channels()
        self.kernel.context.destroy(linger=0)

    def take(self, wait_s: float) -> None:
        """Take what comes until nothing does for so long."""
        with contextlib.suppress(Empty):
            while True:
                self.published.append(self.kernel.get_iopub_msg(timeout=wait_s))
        with contextlib.suppress(Empty):
            while True:
                self.replies.append(self.kernel.get_shell_msg(timeout=0))

    def wait(self, look: Any, what: str) -> Any:
        """Take what comes until `look` gives something; fail by the name of `what`."""
        deadline = time.monotonic() + WAIT_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"{what} did not come: {self.texts()[-300:]!r}"
            self.take(0.05)
        return found

    def hello(self) -> None:
        """Wait until the kernel answers and its output arrives."""

        def arrives() -> bool:
            msg_id = self.kernel.kernel_info()
            self.wait(lambda: self.reply(msg_id), "an answer")
            return "idle" in self.states(msg_id)

        self.wait(arrives, "what is published about an answer")

    def reply(self, msg_id: str) -> dict[str, Any] | None:
        """Return the content of the reply to a request."""
        found = [reply for reply in self.replies if reply["parent_header"].get("msg_id") == msg_id]
        assert len(found) <= 1, "a request was answered twice"
        return found[0]["content"] if found else None

    def of(self, msg_id: str) -> list[dict[str, Any]]:
        """Return what was published for a request."""
        return [message for message in self.published if message["parent_header"].get("msg_id") == msg_id]

    def texts(self, msg_id: str = "") -> str:
        """Return what was printed, by one cell or by all."""
        messages = self.of(msg_id) if msg_id else self.published
        return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")

    def states(self, msg_id: str) -> list[str]:
        """Return the statuses that were published for a request."""
        return [m["content"]["execution_state"] for m in self.of(msg_id) if m["msg_type"] == "status"]

    def finish(self, msg_id: str) -> dict[str, Any]:
        """Wait for a cell's idle status and its reply; return the reply's content."""
        self.wait(lambda: "idle" in self.states(msg_id), "idle")
        return dict(self.wait(lambda: self.reply(msg_id), "the reply"))

    def ask(self, msg_type: str, **content: Any) -> dict[str, Any]:
        """Send a question for the journal on control; return the content of its reply."""
        message = self.kernel.session.msg(msg_type, content)
        self.kernel.control_channel.send(message)
        while True:
            reply = self.kernel.get_control_msg(timeout=WAIT_S)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return dict(reply["content"])


class Routed:
    """A kernel whose router is the test's own child; where its module shares agents, they stay."""

    def __init__(self, directory: Path, *, agents_stay: bool = False, **env: str) -> None:
        self.file = directory / "kernel-routed.json"
        self._ports = {name: free_port() for name in PORTS}
        fields: dict[str, Any] = {"transport": "tcp", "ip": "127.0.0.1", "key": "k"}
        fields |= {"signature_scheme": "hmac-sha256", **self._ports}
        self.file.write_text(json.dumps(fields))
        self.kernel_id = f"routed-{secrets.token_hex(4)}"
        self.env = os.environ | {"KERNEL_ID": self.kernel_id, "REPLKERNEL_HOST_NAME": "here", **env}
        self._agents_stay = agents_stay
        self._clients: list[Client] = []
        self.start()
        try:
            self._await_ports()
        except BaseException:  # Nobody has it yet who would close it.
            self.close()
            raise

    def start(self) -> None:
        """Start a router on the connection file's ports, which are nobody else's while it is away."""
        self.router = subprocess.Popen(
            [sys.executable, "-m", "replkernel.router", "-f", str(self.file)],
            env=self.env,
            cwd=self.file.parent,
            stderr=subprocess.DEVNULL,
        )

    def _await_ports(self) -> None:
        """Wait until the router listens at all of them."""
        deadline = time.monotonic() + WAIT_S
        while not {*self._ports.values()} <= self._listens_at():
            assert time.monotonic() < deadline and self.router.poll() is None, "the router does not listen"
            time.sleep(0.02)

    def _listens_at(self) -> set[int]:
        return {each.laddr.port for each in self._connections() if each.status == psutil.CONN_LISTEN}

    def _connections(self) -> list[Any]:
        return list(psutil.Process(self.router.pid).net_connections(kind="tcp4"))

    def kill(self) -> None:
        """Kill the router as nothing can catch."""
        self.router.kill()
        self.router.wait()

    def await_departure(self) -> None:
        """Wait until the router has closed what its clients have, and has had a turn since."""
        deadline = time.monotonic() + WAIT_S
        while any(each.status == psutil.CONN_CLOSE_WAIT for each in self._connections()):
            assert time.monotonic() < deadline, "the router does not notice that a client has gone"
            time.sleep(0.02)
        self.await_answer()

    def await_answer(self) -> None:
        """Wait until the router answers, without being one of those who listen, nor telling them anything."""
        asking = BlockingKernelClient(connection_file=str(self.file))
        asking.load_connection_file()
        asking.start_channels(shell=False, iopub=False, stdin=False, hb=False)
        asking.control_channel.send(asking.session.msg("replkernel_outputs_request", {}))
        asking.get_control_msg(timeout=WAIT_S)
        asking.stop_channels()
        asking.context.destroy(linger=0)

    def client(self) -> Client:
        """Return a client that the kernel answers."""
        client = Client(self.file)
        self._clients.append(client)
        client.hello()
        return client

    def close(self) -> None:
        """End the kernel, its router and its agents, if these are its own."""
        with contextlib.suppress(Exception):
            self._clients[-1].kernel.shutdown()
            self.router.wait(15)
        for client in self._clients:
            with contextlib.suppress(Exception):
                client.close()
        if self.router.poll() is None:
            self.kill()
        if not self._agents_stay:
            end_agents(self.env)
