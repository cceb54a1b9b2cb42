"""A scheduler's end of the channel for tests: a real Tornado WebSocket server that is told what to do.

It takes one token, remembers what it hears, and can refuse, stay silent, say anything, and go away. Agents'
lines for jobs are welcomed, and kept apart.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from tornado.httpserver import HTTPServer
from tornado.web import Application
from tornado.websocket import WebSocketHandler

from replkernel.leasing.wire import (
    WIRE_VERSION,
    FromClient,
    FromScheduler,
    Hello,
    Welcome,
    decode_from_client,
    encode,
)
from tests.support.ports import free_port

TOKEN = "a-token-that-nobody-may-ever-see"


class ChannelServer:
    """What the handlers share; a test reads `heard` and `clients`."""

    def __init__(self) -> None:
        self.heard: list[FromClient] = []
        self.clients: list[_Client] = []
        self.greeting: FromScheduler | bytes | None = Welcome(WIRE_VERSION, "ada")
        self.jobs_heard: list[FromClient] = []
        self.jobs_lines: list[_Client] = []
        self.opened = 0
        self.port = free_port()
        self._server: HTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port each time."""
        listener = socket.create_server(("127.0.0.1", self.port))
        listener.setblocking(False)
        self._server = HTTPServer(Application([("/api/v1/channel", _Client, {"shared": self})]))
        self._server.add_socket(listener)

    async def stop(self) -> None:
        """Go away without a word: listener and connections end."""
        if self._server is not None:
            self._server.stop()
            for client in [*self.clients, *self.jobs_lines]:
                client.close()
            await self._server.close_all_connections()
            self._server = None
        await until(lambda: not self.clients and not self.jobs_lines)

    def say(self, message: FromScheduler | bytes) -> None:
        """Send to everybody."""
        for client in self.clients:
            client.write_message(message if isinstance(message, bytes) else encode(message), binary=True)


class _Client(WebSocketHandler):
    def initialize(self, shared: ChannelServer) -> None:
        self.shared = shared

    async def prepare(self) -> None:
        if self.request.headers.get("Authorization") != f"token {TOKEN}":
            self.set_status(403)
            await self.finish()

    def open(self) -> None:
        self.set_nodelay(True)
        self.shared.opened += 1
        self.shared.clients.append(self)

    def on_message(self, message: str | bytes) -> None:
        assert isinstance(message, bytes)
        heard = decode_from_client(message)
        if isinstance(heard, Hello) and heard.role == "jobs":
            self.shared.opened -= 1
            self.shared.clients.remove(self)
            self.shared.jobs_lines.append(self)
            self.write_message(encode(Welcome(WIRE_VERSION, "ada")), binary=True)
        if self in self.shared.jobs_lines:
            self.shared.jobs_heard.append(heard)
            return
        self.shared.heard.append(heard)
        if isinstance(heard, Hello) and self.shared.greeting is not None:
            greeting = self.shared.greeting
            self.write_message(greeting if isinstance(greeting, bytes) else encode(greeting), binary=True)

    def on_close(self) -> None:
        lines = self.shared.jobs_lines if self in self.shared.jobs_lines else self.shared.clients
        lines.remove(self)


async def until(holds: Callable[[], object], patience_s: float = 20.0) -> None:
    """Wait until `holds`; fails with what it was asked."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "it did not come about"
        await asyncio.sleep(0.005)
