"""/api/v1/channel: one WebSocket for each agent and router, with the messages of replkernel.leasing.wire.

Law: the token is in the request's header; the first message is Hello, within HELLO_S; everything is bounded:
the size of messages, how many come in a second, how much waits to be sent. Who breaks a bound is told which
and disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec
from tornado import websocket
from tornado.websocket import WebSocketClosedError

from replkernel.errors import ProtocolMismatch
from replkernel.leasing import wire
from replkernel_server.errors import JournalFull, ServerError
from replkernel_server.handlers.scheduler_base import tell_proved
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.documents import Why
from replkernel_server.scheduling.identity import (
    RECHECK_S,
    Identify,
    Identity,
    IdentityUnknown,
    token_of,
)

HELLO_S = 5.0
PING_S = 10.0
MESSAGES_PER_S = 200.0
BURST = 2_000.0
UNSENT_BYTES_MAX = 8 * 1024 * 1024
"""So much may wait for a client that does not read."""
NO_TOKEN = "Send the header 'Authorization: token …' with the scheduler's token."  # noqa: S105 - a sentence


class ChannelHandler(websocket.WebSocketHandler):
    """One connection."""

    ping_interval = PING_S
    ping_timeout = PING_S
    max_message_size = wire.MESSAGE_BYTES_MAX

    def initialize(self, channel: Channel, identify: Identify) -> None:
        """Take what every connection needs."""
        self.channel, self.identify = channel, identify
        self.identity: Identity | None = None
        self.client: int | None = None
        self._token = ""
        self._asking: asyncio.Task[None] | None = None
        self._joined = self._over = False
        self._hello: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._may, self._counted_at = BURST, time.monotonic()

    async def prepare(self) -> None:
        """Refuse whoever does not present a token."""
        self._token = token_of(self.request.headers.get("Authorization", ""))
        try:
            self.identity = await self.identify(self._token) if self._token else None
        except ServerError as error:
            self._refuse_request(error.status, str(error))
            return
        if self.identity is None:
            self._refuse_request(401, NO_TOKEN)
        else:
            tell_proved(self)

    def open(self, *_: str, **__: str) -> None:
        """Wait for the Hello."""
        self.set_nodelay(True)
        self.client = self.channel.connected(self)
        if self.client is None:
            self.refuse("The scheduler has as many clients as it takes: try again later.")
            return
        why = f"No Hello came within {HELLO_S:g} seconds: say it first."
        self._hello = asyncio.get_running_loop().call_later(HELLO_S, self.refuse, why)

    async def on_message(self, frame: str | bytes) -> None:
        """Take one message; the next is read once what this one led to is durable."""
        if self._over or self.client is None or self.identity is None:
            return
        try:
            if isinstance(frame, str):
                raise ProtocolMismatch("a message is text: send msgpack")
            message = wire.decode_from_client(frame)
        except ProtocolMismatch as error:
            self.refuse(f"{error}.")
            return
        if not self._in_time():
            self.refuse(f"More than {MESSAGES_PER_S:g} messages a second came: send fewer.")
        elif self._joined and not isinstance(message, wire.Hello):
            await self.channel.said(self.client, message)
        else:
            await self._greet(message)

    async def _greet(self, message: wire.FromClient) -> None:
        assert self.client is not None and self.identity is not None
        if not isinstance(message, wire.Hello) or self._joined:
            said = "a second Hello" if self._joined else type(message).__name__
            self.refuse(f"{said} came: Hello is the first message, and comes once.")
            return
        if message.version != wire.WIRE_VERSION:
            self.refuse(
                f"The client speaks version {message.version}, this scheduler {wire.WIRE_VERSION}: "
                "install the same release of replkernel on both sides."
            )
            return
        self._joined = True
        self._no_hello_awaited()
        await self.channel.joined(self.client, message, self.identity)
        self._asking = asyncio.get_running_loop().create_task(self._ask_again())

    async def _ask_again(self) -> None:
        """Disconnect whose token is not valid any more, or stands for less than it did."""
        while not self._over:
            await asyncio.sleep(RECHECK_S)
            try:
                now = await self.identify(self._token)
            except IdentityUnknown:
                continue  # Whoever is known stays so while nobody can be asked.
            except ServerError as error:
                self.refuse(str(error))
                return
            if now is None or self.identity is None or _rights(now) != _rights(self.identity):
                self.refuse("Your token is not valid any more, or for something else: connect anew.")
                return
            with contextlib.suppress(JournalFull):  # The next look tells of the quota again.
                await self.channel.known_again(now)

    def on_close(self) -> None:
        """Forget the connection."""
        self._over = True
        self._no_hello_awaited()
        if self._asking is not None:
            self._asking.cancel()
        if self.client is not None:
            self.channel.left(self.client)

    def post(self, message: wire.FromScheduler) -> None:
        """Send a message; disconnect who does not read."""
        if self._over:
            return
        data = wire.encode(message)
        if self._unsent + len(data) > UNSENT_BYTES_MAX:
            self._over = True
            self.close(1008, "too much waits to be read")
            return
        try:
            sent = self.write_message(data, binary=True)
        except WebSocketClosedError:
            return
        self._unsent += len(data)
        sent.add_done_callback(lambda done: self._is_sent(done, len(data)))

    def refuse(self, why: str) -> None:
        """Tell why, and close."""
        if not self._over:
            self.post(wire.Refused(why))
            self._over = True
            self._no_hello_awaited()
            self.close(1008, why.encode()[:100].decode(errors="ignore"))

    def _is_sent(self, done: asyncio.Future[None], size: int) -> None:
        self._unsent -= size
        if not done.cancelled():
            done.exception()  # a connection that is over: on_close tells

    def _no_hello_awaited(self) -> None:
        if self._hello is not None:
            self._hello.cancel()
            self._hello = None

    def _in_time(self) -> bool:
        """Count a message; say whether there were not too many."""
        now = time.monotonic()
        self._may = min(BURST, self._may + (now - self._counted_at) * MESSAGES_PER_S) - 1.0
        self._counted_at = now
        return self._may >= 0.0

    def _refuse_request(self, status: int, why: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(Why(why)))

    def data_received(self, chunk: bytes) -> Any:
        """Take no body."""


def _rights(who: Identity) -> tuple[str, bool, bool, bool]:
    return who.user, who.admin, who.may_host, who.may_lease
