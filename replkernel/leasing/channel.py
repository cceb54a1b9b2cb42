"""One WebSocket to the scheduler, kept up on the caller's asyncio loop: opened, greeted, opened again.

It decides nothing about leases and knows no message but Hello, Welcome and Refused. Law: nothing is queued
while there is no connection; what waits to be sent is bounded; the token is in a header and never in a text.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from replkernel.errors import ProtocolMismatch, SettingError
from replkernel.leasing.wire import (
    MESSAGE_BYTES_MAX,
    WIRE_VERSION,
    FromClient,
    FromScheduler,
    Hello,
    Refused,
    Welcome,
    decode_from_scheduler,
    encode,
)

log = logging.getLogger(__name__)

CHANNEL_PATH = "/api/v1/channel"
PAUSE_S_MIN, PAUSE_S_MAX = 0.2, 5.0
"""A lost connection is tried again after pauses that double from one to the other."""
REFUSED_S = 30.0
"""Who was refused, by word or by token, tries again after this."""
ANSWER_S_MAX = 5.0
"""A scheduler that does not take, or does not welcome, a connection within this is tried again."""
PING_S = 4.0
"""How often a quiet connection is asked whether it lives; the answer may take as long."""
CLOSE_S_MAX = 1.0
UNSENT_BYTES_MAX = 4 * MESSAGE_BYTES_MAX
"""A scheduler that leaves more than this unread is not one that works."""


class SchedulerChannel:
    """One WebSocket to the scheduler at `url`, opened again whenever it is lost, until it is closed."""

    def __init__(
        self,
        url: str,
        token: str,
        hello: Hello,
        on_message: Callable[[FromScheduler], None],
        on_up: Callable[[], None],
        on_down: Callable[[str], None],
    ) -> None:
        """Raise SettingError when `url` is no http address.

        `on_up` is called whenever the scheduler has welcomed us: say then all that it must know. `on_down`
        gets one sentence when it is lost or cannot be had, and again when the reason becomes another one.
        """
        self.url = _checked(url)
        self.user = ""
        """Whom the scheduler takes us for, once it has welcomed us."""
        self._token, self._hello = token, hello
        self._on_message, self._on_up, self._on_down = on_message, on_up, on_down
        self._connection: _Connection | None = None
        self._welcomed = False
        self._why = ""
        self._pause_s = PAUSE_S_MIN
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; a loop must run."""
        self._task = asyncio.get_running_loop().create_task(self._keep_up())

    def send(self, message: FromClient) -> bool:
        """Send now, or return False: there is no connection, and nothing is kept for the next one."""
        return self._welcomed and self._connection is not None and self._connection.write(encode(message))

    async def close(self) -> None:
        """Send what was handed over and end, within CLOSE_S_MAX; nothing is called back after this."""
        self._closing.set()
        self._welcomed = False
        deadline = asyncio.get_running_loop().time() + CLOSE_S_MAX
        if self._connection is not None:
            await self._connection.close(deadline)
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
            self._task.cancel()
            await asyncio.wait({self._task})

    # -- one connection after the other -------------------------------------------------------------

    async def _keep_up(self) -> None:
        await asyncio.to_thread(importlib.import_module, "tornado.websocket")  # It takes 70 ms.
        clock = asyncio.get_running_loop().time
        while not self._closing.is_set():
            began = clock()
            why = await self._serve()
            if clock() - began >= PAUSE_S_MAX:
                self._pause_s = PAUSE_S_MIN
            self._lose(why)
            pause_s = self._pause_s * random.uniform(0.75, 1.0)  # noqa: S311 - so that not all come back at once
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    async def _serve(self) -> str:
        """Open a connection and live on it until it ends; return why it did."""
        connection = self._connection = _Connection(self._take, self._name())
        try:
            await connection.open("ws" + self.url.removeprefix("http") + CHANNEL_PATH, self._token)
            connection.write(encode(self._hello))
            greeting = asyncio.get_running_loop().call_later(ANSWER_S_MAX, self._not_welcomed, connection)
            try:
                return await asyncio.shield(connection.ended)
            finally:
                greeting.cancel()
        except Exception as error:  # whatever a peer that is no scheduler makes of HTTP
            return self._story(error)
        finally:
            connection.drop()

    def _not_welcomed(self, connection: _Connection) -> None:
        if not self._welcomed:
            connection.end(f"{self._name()} does not welcome us within {ANSWER_S_MAX:g} s.")

    def _lose(self, why: str) -> None:
        was_up, self._welcomed, self._connection = self._welcomed, False, None
        if self._closing.is_set() or not (was_up or why != self._why):
            return
        self._why = why
        log.info("no scheduler: %s", why)
        self._call(self._on_down, why)

    def _take(self, connection: _Connection, frame: bytes) -> None:
        if self._closing.is_set():
            return
        try:
            message = decode_from_scheduler(frame)
        except ProtocolMismatch as error:
            connection.end(f"{self._name()} sends what is not understood: {error}.")
            return
        if self._welcomed:
            self._call(self._on_message, message)
        else:
            self._greeted(connection, message)

    def _greeted(self, connection: _Connection, message: FromScheduler) -> None:
        """Take the first answer: a welcome, or why not."""
        if isinstance(message, Refused):
            self._pause_s = REFUSED_S
            connection.end(f"{self._name()} refuses us: {message.why}")
        elif not isinstance(message, Welcome):
            connection.end(f"{self._name()} does not begin with a welcome.")
        elif message.version != WIRE_VERSION:
            self._pause_s = REFUSED_S
            connection.end(
                f"{self._name()} speaks version {message.version} and this side version {WIRE_VERSION}: "
                "install the same replkernel on both."
            )
        else:
            self._welcomed, self.user, self._why = True, message.user, ""
            log.info("the scheduler at %s is there", self.url)
            self._call(self._on_up)

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call back; what goes wrong there is logged and does not take the connection with it."""
        try:
            callback(*arguments)
        except Exception:
            log.exception("what came from the scheduler could not be handled")

    def _name(self) -> str:
        return f"The scheduler at {self.url}"

    def _story(self, error: Exception) -> str:
        """Return in one sentence why no connection came about."""
        code = getattr(error, "code", None)
        if code in (401, 403):
            self._pause_s = REFUSED_S
            fix = "copy its token file to scheduler/token in the data directory, with mode 0600"
            return f"{self._name()} refuses our token: set REPLKERNEL_SCHEDULER_TOKEN, or {fix}."
        if isinstance(code, int) and 100 <= code < 599:
            return f"{self._name()} answers {code}, so it is no replkernel scheduler: correct the address."
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        fix = "start it with `replkernel scheduler`"
        return f"{self._name()} does not answer ({reason or type(error).__name__}): {fix}."


class _Connection:
    """One WebSocket; `ended` becomes why it ended, in one sentence."""

    def __init__(self, on_frame: Callable[[_Connection, bytes], None], peer: str) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_frame, self._peer = on_frame, peer
        self._socket: Any = None
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
        """Close the socket, whatever its state."""
        if self._socket is not None:
            self._socket.close()

    async def close(self, deadline: float) -> None:
        """Have all writes done and say goodbye, until `deadline` at the latest."""
        clock = asyncio.get_running_loop().time
        if self._writes:
            await asyncio.wait(self._writes, timeout=max(0.0, deadline - clock()))
        self.drop()
        if self._socket is not None:
            await asyncio.wait({self.ended}, timeout=max(0.0, deadline - clock()))
        self.end("closed")


def _close_late(opening: asyncio.Future[Any]) -> None:
    """Close a connection that came about when nobody wanted it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _checked(url: str) -> str:
    """Return the address without a slash at its end; raises SettingError if it is none or has a password."""
    shown = url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or parts.query or parts.fragment:
        fix = "write http://HOST:PORT, or unset the setting"
        raise SettingError("REPLKERNEL_SCHEDULER_URL", shown, "not an http address", fix)
    return url.rstrip("/")
