"""A client that runs its steps one after the other and writes down what it sees.

Law: it never sends a cell twice, and gives up on one only when the router died meanwhile or was silent for
longer than any wait of the product.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from jupyter_client import BlockingKernelClient

from tests.e2e.faults.cells import code_of, outcome_of, said_in, shown
from tests.e2e.faults.history import Operation
from tests.e2e.faults.schedule import Step

HUNG_S = 75.0
"""Longer than each wait of the product: 60 s for a replica or for variables, 30 s for a commit."""

AFTER_ROUTER_S = 6.0
"""So long after a router's return the answer to a cell from before may still come."""

IDLE_S = 5.0
ABORTED_MAX = 3
"""A question is asked so often when errors of other clients' cells abort it."""


class Received:
    """What came for one cell so far."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] | None = None
        self.printed = ""
        self.warned = ""
        self.idle = False


class Client(threading.Thread):
    """One client of the kernel with a connection of its own."""

    def __init__(
        self,
        name: str,
        connection_file: str,
        steps: tuple[Step, ...],
        returned: Callable[[], tuple[int, float]],
        on_done: Callable[[Operation], None],
    ) -> None:
        """Take the steps; `returned` tells how often and when the router was last started again."""
        super().__init__(name=f"client-{name}", daemon=True)
        self.label = name
        self.failed = ""
        self._steps = steps
        self._returned = returned
        self._on_done = on_done
        self._client = BlockingKernelClient(connection_file=connection_file)

    def connect(self) -> None:
        """Connect, and return once the kernel answers."""
        self._client.load_connection_file()
        self._client.start_channels(hb=False)
        self._client.wait_for_ready(timeout=60)

    def run(self) -> None:
        """Run all steps."""
        try:
            for step in self._steps:
                time.sleep(step.pause_s)
                made = self.perform(step, code_of(step))
                self._on_done(made)
                if made.outcome == "hung":
                    return
        except Exception as error:
            self.failed = f"client {self.label} failed: {type(error).__name__}: {error}"

    def close(self) -> None:
        """Let go of the connection."""
        self._client.stop_channels()
        self._client.context.destroy(linger=0)

    def perform(self, step: Step, code: str) -> Operation:
        """Run one cell and return what was seen of it."""
        epoch, _ = self._returned()
        began = time.monotonic()
        request = self._client.execute(code, stop_on_error=True)
        received = Received()
        given_up = self._await(request, received, began, epoch)
        ended = time.monotonic()
        if received.reply is None:
            return Operation(
                step.name, step.kind, self.label, began, ended, "hung" if given_up else "unknown"
            )
        content = received.reply["content"]
        told = received.reply["metadata"].get("replkernel", {})
        outcome = outcome_of(content, told)
        found = shown(received.printed)
        return Operation(
            step.name,
            step.kind,
            self.label,
            began,
            ended,
            outcome,
            seen=found.seen if outcome == "done" else None,
            durable=bool(told.get("durable")),
            count=int(content.get("execution_count") or 0),
            replica=str(told.get("replica", "")),
            large=found.large if outcome == "done" else None,
            marked=found.marked if outcome == "done" else None,
            said=said_in(content, received.warned),
        )

    def ask(self, code: str) -> tuple[str, str, int]:
        """Run a cell that must succeed; return the replica that ran it, what it printed, and its count."""
        for _ in range(ABORTED_MAX):
            epoch, _ = self._returned()
            received = Received()
            self._await(self._client.execute(code), received, time.monotonic(), epoch)
            if received.reply is None or received.reply["content"]["status"] != "aborted":
                break
        if received.reply is None or received.reply["content"]["status"] != "ok":
            content = received.reply["content"] if received.reply is not None else None
            raise RuntimeError(f"a cell after healing was not run: {content}")
        replica = str(received.reply["metadata"]["replkernel"]["replica"])
        return replica, received.printed, int(received.reply["content"]["execution_count"])

    def _await(self, request: str, received: Received, began: float, epoch: int) -> bool:
        """Take messages until the cell is answered and idle; return whether the wait was in vain."""
        idle_by, greeted = None, False
        while True:
            self._take(request, received)
            now = time.monotonic()
            if received.reply is not None:
                idle_by = idle_by or now + IDLE_S
                if received.idle or now > idle_by:
                    return False
                continue
            returns, at = self._returned()
            if returns != epoch and not greeted:
                self._client.kernel_info()
                greeted = True
            if returns != epoch and now > at + AFTER_ROUTER_S:
                return False
            if now > began + HUNG_S and (returns == epoch):
                return True

    def _take(self, request: str, received: Received) -> None:
        try:
            message = self._client.get_iopub_msg(timeout=0.02)
            if message["parent_header"].get("msg_id") == request:
                _note(message, received)
        except queue.Empty:
            pass
        try:
            reply = self._client.get_shell_msg(timeout=0)
            if reply["parent_header"].get("msg_id") == request:
                received.reply = reply
        except queue.Empty:
            pass


def _note(message: dict[str, Any], received: Received) -> None:
    content = message["content"]
    if message["msg_type"] == "stream":
        if content["name"] == "stdout":
            received.printed += content["text"]
        else:
            received.warned += content["text"]
    elif message["msg_type"] == "status" and content["execution_state"] == "idle":
        received.idle = True
