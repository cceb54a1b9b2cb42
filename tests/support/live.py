"""A kernel of the real stack under a test: started by Jupyter's own manager, its terminal is kept.

Law: every wait is bounded, and what a kernel started ends with it (`conftest` ends the agents).
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from jupyter_client import BlockingKernelClient, KernelManager

from replkernel.protocol.progress import REQUEST, ProgressAnswer
from tests.support.stock import OURS

CELL_S = 60.0
COMMIT_S = 60.0
START_S = 60.0
REPLY_S = 30.0
AGENT_S = 20.0
"""An agent that answers later counts as one that knows of no kernel."""

Value = TypeVar("Value")


class Ran(msgspec.Struct):
    """What a client saw of one cell: reply, streams, and every message on iopub as (type, content)."""

    reply: dict[str, Any]
    messages: list[tuple[str, dict[str, Any]]]
    seconds: float

    @property
    def status(self) -> str:
        """Return ``ok``, ``error`` or ``aborted``."""
        return str(self.reply["content"]["status"])

    @property
    def error(self) -> str:
        """Return the error as its last line reads, or an empty string."""
        content = self.reply["content"]
        return f"{content['ename']}: {content['evalue']}" if "ename" in content else ""

    @property
    def out(self) -> str:
        """Return what was printed."""
        return self._stream("stdout")

    @property
    def err(self) -> str:
        """Return what was written to standard error."""
        return self._stream("stderr")

    @property
    def kinds(self) -> list[str]:
        """Return the types of the messages on iopub; a status by its state."""
        return [content.get("execution_state", kind) for kind, content in self.messages]

    @property
    def said(self) -> dict[str, Any]:
        """Return what replkernel says in the reply's metadata."""
        return dict(self.reply["metadata"].get("replkernel", {}))

    @property
    def replica(self) -> str:
        """Return the replica that ran the cell."""
        return str(self.said["replica"])

    def _stream(self, name: str) -> str:
        return "".join(
            content["text"] for kind, content in self.messages if kind == "stream" and content["name"] == name
        )


class Live:
    """A kernel and one client of it."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient, terminal: Path) -> None:
        self.manager = manager
        self.client = client
        self._terminal = terminal

    @property
    def terminal(self) -> str:
        """Return what the kernel's terminal shows so far."""
        return self._terminal.read_text()

    def run(self, code: str, timeout: float = CELL_S, **options: Any) -> Ran:
        """Run a cell to its end."""
        messages: list[tuple[str, dict[str, Any]]] = []
        started = time.monotonic()
        reply = self.client.execute_interactive(
            code,
            timeout=timeout,
            output_hook=lambda message: messages.append((message["msg_type"], message["content"])),
            **options,
        )
        return Ran(reply, messages, time.monotonic() - started)

    def value(self, code: str, timeout: float = CELL_S) -> str:
        """Run a cell that must succeed, and return what it printed."""
        ran = self.run(code, timeout)
        assert ran.status == "ok", ran.error
        return ran.out.strip()

    def reply(self, asked: str, within_s: float = CELL_S) -> dict[str, Any]:
        """Return the reply on the shell channel to one request."""
        return reply_to(self.client, asked, within_s)


def reply_to(client: BlockingKernelClient, asked: str, within_s: float = CELL_S) -> dict[str, Any]:
    """Return the reply on the shell channel to one request; those to others before it are dropped."""
    deadline = time.monotonic() + within_s
    while True:
        left_s = max(0.01, deadline - time.monotonic())
        message: dict[str, Any] = client.get_shell_msg(timeout=left_s)
        if message["parent_header"].get("msg_id") == asked:
            return message


def published(client: BlockingKernelClient, msg_id: str) -> list[dict[str, Any]]:
    """Return everything that is published about a request, up to a moment after its idle."""
    found: list[dict[str, Any]] = []
    idle = False
    with contextlib.suppress(queue.Empty):
        while True:
            message = client.get_iopub_msg(timeout=0.3 if idle else REPLY_S)
            if message["parent_header"].get("msg_id") == msg_id:
                found.append(message)
                idle = idle or message["content"].get("execution_state") == "idle"
    return found


def progress(client: BlockingKernelClient) -> ProgressAnswer:
    """Return what the router tells of the notebook's executions; the notebook notices nothing of it."""
    asked = client.session.msg(REQUEST, {})
    client.control_channel.send(asked)
    while True:
        message = client.get_control_msg(timeout=COMMIT_S)
        if message["parent_header"].get("msg_id") == asked["header"]["msg_id"]:
            return msgspec.convert(message["content"], ProgressAnswer)


def await_commit(client: BlockingKernelClient) -> None:
    """Return once all that ran is durable, or changed nothing; asked so that the notebook notices nothing."""
    deadline = time.monotonic() + COMMIT_S
    while True:
        told = progress(client).executions
        if all(one.state == "done" and one.safety != "pending" for one in told):
            return
        assert time.monotonic() < deadline, told
        time.sleep(0.01)


@contextlib.contextmanager
def kernel(directory: Path, manager: KernelManager | None = None, **settings: str) -> Iterator[Live]:
    """Start a kernel with `settings` in its environment, and a client that listens; end both after."""
    terminal = directory / f"terminal-{time.monotonic_ns()}"
    made = manager or KernelManager(kernel_name=OURS)
    with terminal.open("wb") as sink:
        made.start_kernel(
            env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=sink, cwd=str(directory)
        )
        client: BlockingKernelClient = made.blocking_client()
        client.start_channels(hb=False)
        try:
            _await_ready(client, terminal)
            yield Live(made, client, terminal)
        finally:
            client.stop_channels()
            if made.has_kernel:
                made.shutdown_kernel(now=False)
            made.context.destroy(linger=0)


def _await_ready(client: BlockingKernelClient, terminal: Path) -> None:
    """Wait for the kernel, and for its answers to every question that the client asked while it was slow."""
    try:
        client.wait_for_ready(timeout=START_S)
    except RuntimeError as error:
        raise AssertionError(f"{error}; its terminal shows:\n{terminal.read_text()}") from error
    last = client.kernel_info()
    reply_to(client, last, START_S)
    while (message := client.get_iopub_msg(timeout=START_S))["content"].get("execution_state") != "idle" or (
        message["parent_header"].get("msg_id") != last
    ):
        pass


def eventually(look: Callable[[], Value | None], what: str, within_s: float = 30.0) -> Value:
    """Return the first true value that `look` gives; fail by the name of `what` when none comes in time."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come true within {within_s:g} s"
        time.sleep(0.05)
