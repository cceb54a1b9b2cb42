"""What the server tells of executions while the test runs: when each got its GPUs, and was durable.

Law: it only listens. A server that tells nothing (another kernel, no extension) costs these figures alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from replkernel.errors import UNREADABLE
from replkernel_server.live.documents import Changes, Execution, Snapshot
from replkernel_server.loadtest.errors import LoadTestError
from replkernel_server.loadtest.samples import CellSample
from replkernel_server.loadtest.server import LabServer

if TYPE_CHECKING:
    from tornado.websocket import WebSocketClientConnection


PATH = "replkernel/api/live/channel"
AGAIN_S = 1.0
_decoder: msgspec.json.Decoder[Snapshot | Changes] = msgspec.json.Decoder(Snapshot | Changes)


class Listening:
    """The last word on each execution of the cells that are awaited."""

    def __init__(self, server: LabServer) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._awaited: dict[str, CellSample] = {}
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with the next word of the server."""
        self.trouble = ""
        self.leases_max = self.waiting_max = 0

    async def begin(self) -> None:
        """Listen from now on, if there is somebody to listen to."""
        try:
            socket = await self._server.open(PATH)
        except LoadTestError as error:
            self.trouble = f"{error} Durability and leases are not measured."
            return
        self._task = asyncio.create_task(self._listen(socket))

    def expect(self, sample: CellSample) -> None:
        """Put what is told of a cell into its sample."""
        self._awaited[sample.msg_id] = sample

    def unsettled(self, session: str = "") -> int:
        """Return how many cells (of one session, or all) are not known to be durable or lost."""
        if self._task is None:
            return 0
        return sum(
            sample.safety in ("", "pending")
            for sample in self._awaited.values()
            if not session or sample.session == session
        )

    async def _listen(self, socket: WebSocketClientConnection) -> None:
        while True:
            data = await socket.read_message()
            if data is not None:
                self._hear(data)
                continue
            while True:
                await asyncio.sleep(AGAIN_S)
                with contextlib.suppress(LoadTestError):
                    socket = await self._server.open(PATH)
                    break

    def _hear(self, data: str | bytes) -> None:
        try:
            self._take(_decoder.decode(data))
        except UNREADABLE as error:
            self.trouble = (
                f"The server says what this release does not understand ({error}): install the same one on "
                "both sides. Durability and leases are incomplete."
            )

    def _take(self, message: Snapshot | Changes) -> None:
        for execution in message.executions:
            sample = self._awaited.get(execution.msg_id)
            if sample is not None:
                note(sample, execution)
        heard, self._next = self._next, asyncio.get_running_loop().create_future()
        heard.set_result(None)
        if message.leases is not None:
            self.leases_max = max(self.leases_max, len(message.leases))
        if message.queue is not None:
            self.waiting_max = max(self.waiting_max, len(message.queue))

    async def settle(self, within_s: float, session: str = "") -> None:
        """Wait until the end of each cell (of one session, or all) is known, but no longer than that."""
        until = time.monotonic() + within_s
        while self.unsettled(session) and (left_s := until - time.monotonic()) > 0:
            await asyncio.wait({self._next}, timeout=left_s)

    def close(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()


def note(sample: CellSample, told: Execution) -> None:
    """Put what the router tells of an execution into the cell's sample."""
    sample.safety, sample.host = told.safety, told.host
    if told.granted_at is not None and told.wished_at is not None:
        sample.lease_wait_s = told.granted_at - told.wished_at
    if told.durable_at is not None and told.ended_at is not None:
        # A delta that overtakes its reply was durable at the reply.
        sample.durability_lag_s = max(0.0, told.durable_at - told.ended_at)
        sample.commit_s = max(0.0, sample.durability_lag_s - (told.capture_s or 0.0))
