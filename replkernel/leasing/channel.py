"""One WebSocket to the scheduler, kept up on the caller's asyncio loop: opened, greeted, opened again.

It decides nothing about leases and knows no message but Hello, Welcome and Refused. Law: nothing is queued
while there is no connection; callbacks come on the loop, in order, and none of them can end the channel.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from replkernel.errors import UNREADABLE, ProtocolMismatch
from replkernel.leasing.advice import HUB_TOKEN, Patience, when_silent, when_strange
from replkernel.leasing.asking import check_address
from replkernel.leasing.connection import Connection
from replkernel.leasing.finding import TOKEN, is_hub_service
from replkernel.leasing.wire import (
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
WELCOME_S_MAX = 5.0
"""A scheduler that does not welcome a connection within this is tried again."""
CLOSE_S_MAX = 1.0
SAID_CHARS_MAX = 1000
"""A scheduler's sentence that is longer is not shown."""


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
        look_again: Callable[[], tuple[str, str]] | None = None,
        stranger_at: Callable[[str], str] = lambda url: "",
    ) -> None:
        """Raise SettingError when `url` is no http address.

        `on_up` is called whenever the scheduler has welcomed us: say then all that it must know. `on_down`
        gets one sentence when it is lost or cannot be had, and again when the reason becomes another one.
        `look_again` may block: it is called, in a thread, before each further try, and returns url and token
        of the scheduler as it is by then (an empty url: as before). `stranger_at` says, right before a
        connection to a url, in one sentence why the token must not go there; or nothing.
        """
        self.url = check_address(url)
        self.user = ""
        """Whom the scheduler takes us for, once it has welcomed us."""
        self._token, self._hello, self._look_again = token, hello, look_again
        self._stranger_at = stranger_at
        self._on_message, self._on_up, self._on_down = on_message, on_up, on_down
        self._connection: Connection | None = None
        self._latest: Connection | None = None
        """The one of now, or the last that there was: its goodbye may not be answered yet."""
        self._welcomed = False
        self._why = ""
        self._pause_s, self._patience = PAUSE_S_MIN, Patience()
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
        if self._latest is not None:
            self._latest.abandon()

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
            await self._rest()

    async def _rest(self) -> None:
        """Wait before the next try; no longer when the scheduler turns out to be another one by now."""
        left_s = self._pause_s * random.uniform(0.75, 1.0)  # noqa: S311 - so that not all come back at once
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        while left_s > 0.0 and not self._closing.is_set():
            turn_s = min(left_s, PAUSE_S_MAX)
            with suppress(TimeoutError):
                async with asyncio.timeout(turn_s):
                    await self._closing.wait()
            left_s -= turn_s
            if await self._moved():
                self._pause_s = PAUSE_S_MIN
                self._patience.forget()
                return

    async def _moved(self) -> bool:
        """Look where the scheduler is, and whether that is news."""
        if self._look_again is None or self._closing.is_set():
            return False
        try:
            url, token = await asyncio.to_thread(self._look_again)
            if not url or (check_address(url), token) == (self.url, self._token):
                return False
        except Exception as error:
            log.info("the scheduler's address cannot be read: %s", error)
            return False
        self.url, self._token = check_address(url), token
        return True

    async def _serve(self) -> str:
        """Open a connection and live on it until it ends; return why it did."""
        if stranger := self._stranger_at(self.url):
            if stranger != self._why:
                log.warning("%s", stranger)
            return stranger
        if self._latest is not None:
            self._latest.abandon()
        connection = self._connection = self._latest = Connection(self._take, self._name())
        try:
            await connection.open("ws" + self.url.removeprefix("http") + CHANNEL_PATH, self._token)
            connection.write(encode(self._hello))
            greeting = asyncio.get_running_loop().call_later(WELCOME_S_MAX, self._not_welcomed, connection)
            try:
                return await asyncio.shield(connection.ended)
            finally:
                greeting.cancel()
        except Exception as error:  # whatever a peer that is no scheduler makes of HTTP
            return self._story(error)
        finally:
            connection.drop()

    def _not_welcomed(self, connection: Connection) -> None:
        if not self._welcomed:
            connection.end(f"{self._name()} does not welcome us within {WELCOME_S_MAX:g} s.")

    def _lose(self, why: str) -> None:
        was_up, self._welcomed, self._connection = self._welcomed, False, None
        if self._closing.is_set() or not (was_up or why != self._why):
            return
        self._why = why
        log.info("no scheduler: %s", why)
        self._call(self._on_down, why)

    def _take(self, connection: Connection, frame: bytes) -> None:
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

    def _greeted(self, connection: Connection, message: FromScheduler) -> None:
        """Take the first answer: a welcome, or why not."""
        if isinstance(message, Refused):
            self._pause_s = self._patience.pause_s()
            connection.end(f"{self._name()} refuses us: {message.why}")
        elif not isinstance(message, Welcome):
            connection.end(f"{self._name()} does not begin with a welcome.")
        elif message.version != WIRE_VERSION:
            self._pause_s = self._patience.pause_s()
            connection.end(
                f"{self._name()} speaks version {message.version} and this side version {WIRE_VERSION}: "
                "install the same replkernel on both."
            )
        else:
            self._welcomed, self.user, self._why = True, message.user, ""
            self._patience.forget()
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
        from tornado.websocket import WebSocketError

        code = getattr(error, "code", None)
        if code == 403 and (said := _said(error)):
            self._pause_s = self._patience.pause_s()
            return f"{self._name()} refuses us: {said}"
        if code in (401, 403):
            self._pause_s = self._patience.pause_s()
            fix = "copy its token file to scheduler/token in the data directory, with mode 0600"
            fix = HUB_TOKEN if is_hub_service(self.url) else f"set {TOKEN}, or {fix}"
            return f"{self._name()} refuses our token: {fix}."
        if isinstance(code, int) and 100 <= code < 599:
            means, fix = when_strange(self.url, code)
            return f"{self._name()} answers {code}{means}: {fix}."
        if isinstance(error, WebSocketError):
            return f"{self._name()} answers, and not as a replkernel scheduler does: correct the address."
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        reason = reason or type(error).__name__
        return f"{self._name()} does not answer ({reason}): {when_silent(self.url)}."


def _said(error: Exception) -> str:
    """Return the sentence with which a scheduler refuses, empty if there is none that can be shown."""
    body = getattr(getattr(error, "response", None), "body", b"")
    try:
        said = msgspec.json.decode(body, type=dict[str, Any]).get("why", "")
    except UNREADABLE:
        return ""
    return said if isinstance(said, str) and said.isprintable() and len(said) <= SAID_CHARS_MAX else ""
