"""An agent's or a router's side of the scheduler's channel, as small as can be: say, and hear."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from replkernel.leasing import wire

HEAR_S = 20.0
Kind = TypeVar("Kind", bound=wire.LeaseMessage)


class Closed(Exception):
    """The scheduler closed the connection; what it said before is the text."""


OPENED: list[Client] = []


async def close_all() -> None:
    """Close every connection that a test opened."""
    while OPENED:
        client = OPENED.pop()
        client.close()
        await client.gone()


class Client:
    """One connection."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
        self.heard: list[wire.FromScheduler] = []
        self.over = False
        OPENED.append(self)

    @staticmethod
    async def connect(url: str, headers: Mapping[str, str]) -> Client:
        """Open a connection and say nothing."""
        address = url.replace("http", "ws", 1) + "/api/v1/channel"
        connection = await websocket_connect(HTTPRequest(address, headers=dict(headers)))
        connection.protocol.set_nodelay(True)
        return Client(connection)

    @staticmethod
    async def hello(url: str, token: str, role: str, name: str) -> Client:
        """Open a connection, say Hello and be welcomed."""
        client = await Client.connect(url, {"Authorization": f"token {token}"})
        client.say(wire.Hello(wire.WIRE_VERSION, role, name))  # type: ignore[arg-type]
        await client.hear(wire.Welcome)
        return client

    def say(self, *messages: wire.FromClient) -> None:
        """Send messages."""
        for message in messages:
            self.connection.write_message(wire.encode(message), binary=True)

    async def hear(self, kind: type[Kind], timeout_s: float = HEAR_S) -> Kind:
        """Return the next message of `kind`; others that come before it are kept in `heard`."""
        async with asyncio.timeout(timeout_s):
            while True:
                message = await self._next()
                if isinstance(message, kind):
                    return message
                self.heard.append(message)

    async def _next(self) -> wire.FromScheduler:
        frame = await self.connection.read_message()
        if frame is None:
            self.over = True
            raise Closed(str([str(getattr(message, "why", "")) for message in self.heard]))
        assert isinstance(frame, bytes)
        return wire.decode_from_scheduler(frame)

    async def refusal(self) -> str:
        """Return why the scheduler closes the connection."""
        why = (await self.hear(wire.Refused)).why
        await self.gone()
        return why

    async def gone(self) -> None:
        """Return once the connection is over."""
        while not self.over:
            self.over = await self.connection.read_message() is None

    def close(self) -> None:
        """Go without a word."""
        self.connection.close()


def offer(host: str, gpus: int, model: str = "H100") -> wire.HostOffer:
    """Return what an agent offers."""
    return wire.HostOffer(
        tuple(wire.OfferedGpu(f"GPU-{host}-{n}", model, 80.0) for n in range(gpus)), 16.0, 64.0
    )
