"""One WebSocket to a scheduler, from its opening to its end: what is written, what arrives, why it ended.

It is opened once; who wants another makes another. Law: what waits to be sent is bounded, and so is all
waiting; the token is in a header and never in a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from replkernel.leasing.wire import MESSAGE_BYTES_MAX

ANSWER_S_MAX = 5.0
"""A scheduler that does not take a connection within this does not answer."""
PING_S = 4.0
"""How often a quiet connection is asked whether it lives; the answer may take as long."""
UNSENT_BYTES_MAX = 4 * MESSAGE_BYTES_MAX
"""A scheduler that leaves more than this unread is not one that works."""


class Connection:
    """One WebSocket; `ended` becomes why it ended, in one sentence."""

    def __init__(self, on_frame: Callable[[Connection, bytes], None], peer: str) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_frame, self._peer = on_frame, peer
        self._socket: Any = None
        self._stream: Any = None
        self._writes: set[asyncio.Future[None]] = set()
        self._unsent = 0

    async def open(self, address: str, token: str) -> None:
        """Connect; raises what the library raises."""
        from tornado.httpclient import HTTPRequest
        from tornado.websocket import websocket_connect

        request = HTTPRequest(
            address,
            headers={"Authorization": f"token {token}"},
            connect_timeout=ANSWER_S_MAX,
            request_timeout=ANSWER_S_MAX,
        )
        connect = partial(websocket_connect, ping_interval=PING_S, ping_timeout=PING_S)
        opening = asyncio.ensure_future(
            connect(request, on_message_callback=self._arrived, max_message_size=MESSAGE_BYTES_MAX)
        )
        try:
            self._socket = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_late)
            raise
        if self._socket.protocol is not None:  # Else a message waits up to 40 ms for the one before it.
            self._socket.protocol.set_nodelay(True)
            self._stream = self._socket.protocol.stream

    def write(self, frame: bytes) -> bool:
        """Hand a frame over to be sent; return whether that is possible."""
        if self.ended.done() or self._socket is None:
            return False
        if self._unsent + len(frame) > UNSENT_BYTES_MAX:
            self.end(f"{self._peer} takes nothing any more.")
            return False
        try:
            writing = self._socket.write_message(frame, binary=True)
        except Exception:  # WebSocketClosedError
            self.end(f"{self._peer} is gone.")
            return False
        self._unsent += len(frame)
        self._writes.add(writing)
        writing.add_done_callback(lambda done: self._sent(done, len(frame)))
        return True

    def _sent(self, writing: asyncio.Future[None], size: int) -> None:
        self._writes.discard(writing)
        self._unsent -= size
        if not writing.cancelled() and writing.exception() is not None:
            self.end(f"{self._peer} is gone.")

    def _arrived(self, frame: str | bytes | None) -> None:
        if self.ended.done():
            return
        if isinstance(frame, bytes):
            self._on_frame(self, frame)
        elif frame is None:
            self.end(f"{self._peer} closed the connection.")
        else:
            self.end(f"{self._peer} sends text, which no scheduler does: correct the address.")

    def end(self, why: str) -> None:
        """Call it over, for this reason unless there is an earlier one."""
        if not self.ended.done():
            self.ended.set_result(why)

    def drop(self) -> None:
        """Say goodbye; the socket is closed once that is answered, or a while later."""
        if self._socket is not None:
            self._socket.close()

    def abandon(self) -> None:
        """Close the socket now: who has not answered the goodbye will not be waited for."""
        if self._stream is not None:
            self._stream.close()

    async def close(self, deadline: float) -> None:
        """Have all writes done and say goodbye, until `deadline` at the latest."""
        clock = asyncio.get_running_loop().time
        if self._writes:
            await asyncio.wait(self._writes, timeout=max(0.0, deadline - clock()))
        self.drop()
        if self._socket is not None:
            await asyncio.wait({self.ended}, timeout=max(0.0, deadline - clock()))
        self.end("closed")
        self.abandon()


def _close_late(opening: asyncio.Future[Any]) -> None:
    """Close a connection that came about when nobody wanted it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
