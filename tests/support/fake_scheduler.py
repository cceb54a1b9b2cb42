"""A small scheduler for tests: first come, first served, on the real wire, in a thread of the test process.

It speaks `leasing.wire` on a Tornado WebSocket as the real one does, and does what a test tells it to beside.
Law: no GPU is leased twice, which `check` looks at after every message.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from replkernel.leasing.wire import (
    WIRE_VERSION,
    Denied,
    FromClient,
    FromScheduler,
    Granted,
    GrantedLease,
    Hello,
    KernelGone,
    KernelHere,
    LeaseBack,
    LeaseKept,
    LeaseLingers,
    LeaseOver,
    LeaseWanted,
    LeaseWish,
    Waiting,
    Welcome,
    WishOver,
    decode_from_client,
    encode,
)
from replkernel.records import HostName
from tests.support.ports import free_port

TOKEN = "the-token-of-the-test"
PATIENCE_S = 60.0


class FakeScheduler:
    """Serves the GPUs of some hosts, named ``<host>-0``, ``<host>-1``, … until it is stopped."""

    def __init__(self, gpus: Mapping[str, int], *, ttl_s: float = 60.0) -> None:
        self.heard: list[tuple[str, FromClient]] = []
        """What was said, with who said it, in order."""
        self.leases: dict[str, GrantedLease] = {}
        self.price = (0.0, "")
        """What each lease costs an hour."""
        self.lingering: set[str] = set()
        self._gpus = {
            host: tuple(f"{host}-{number}" for number in range(count)) for host, count in gpus.items()
        }
        self._ttl_s = ttl_s
        self._waiting: dict[str, tuple[str, LeaseWish]] = {}
        self._homes: dict[str, tuple[HostName, ...]] = {}
        self._owners: dict[str, str] = {}
        self._fence = 0
        self._clients: dict[str, _Client] = {}
        self._port = free_port()
        self.start()

    # -- its life -----------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """Return the settings by which a kernel finds it."""
        return {
            "REPLKERNEL_SCHEDULER_URL": f"http://127.0.0.1:{self._port}",
            "REPLKERNEL_SCHEDULER_TOKEN": TOKEN,
        }

    def start(self) -> None:
        """Serve, on the same port each time, with all that was known."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE_S)

    def stop(self) -> None:
        """Go away without a word."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(PATIENCE_S)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        listener = socket.create_server(("127.0.0.1", self._port))
        listener.setblocking(False)
        routes: list[Any] = [("/api/v1/channel", _Client, {"scheduler": self}), ("/api/v1/status", _Status)]
        server = HTTPServer(Application(routes))
        server.add_socket(listener)
        ready.set()
        await self._end.wait()
        server.stop()
        for client in list(self._clients.values()):
            client.close()
        await server.close_all_connections()
        self._clients.clear()

    # -- what a test asks ---------------------------------------------------------------------------

    def wait(self, look: Callable[[], Any], what: str) -> Any:
        """Wait until `look` gives something; fail by the name of `what`."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"{what} did not come: {self.heard[-20:]!r}"
            time.sleep(0.01)
        return found

    def said(self, kind: type[Any]) -> list[Any]:
        """Return the messages of one kind that were heard."""
        return [message for _, message in list(self.heard) if isinstance(message, kind)]

    def told(self, kind: type[Any], count: int = 1) -> Any:
        """Wait until so many messages of a kind were heard; return the last one of them."""
        self.wait(lambda: len(self.said(kind)) >= count, f"{count} {kind.__name__}")
        return self.said(kind)[count - 1]

    def do(self, what: Callable[..., None], *arguments: Any) -> None:
        """Have something done on the scheduler's own loop, and wait until it is."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (what(*arguments), done.set()))
        assert done.wait(PATIENCE_S)

    def end(self, lease: str, why: str) -> None:
        """Take a lease away from whoever has it."""
        self.do(self._end_lease, lease, why)

    def occupy(self, host: str, gpus: int = 0) -> str:
        """Lease GPUs of a host, all or so many, to somebody else; return the lease."""
        wish = LeaseWish("else", gpus or len(self._gpus[host]), (HostName(host),))
        self.do(self._grant, "somebody", wish)
        return next(lease.lease for lease in self.leases.values() if lease.request == "else")

    # -- what it does -------------------------------------------------------------------------------

    def take(self, name: str, message: FromClient) -> None:
        """Take a message of a router."""
        self.heard.append((name, message))
        match message:
            case KernelHere():
                self._homes[name] = message.hosts or self._homes.get(name, ())
                for held in message.leases:
                    if held.lease not in self.leases:
                        self._say(name, LeaseOver(held.lease, "never known"))
            case LeaseWish():
                self._ask(name, message)
            case WishOver():
                self._waiting.pop(message.request, None)
            case LeaseLingers() if message.lease in self.leases:
                self.lingering.add(message.lease)
                self._serve_all()
            case LeaseBack() if message.lease in self.leases:
                self._end_lease(message.lease, "released")
            case LeaseKept():
                lease = self.leases.get(message.lease)
                answer = LeaseOver(message.lease, "expired") if lease is None else Granted(lease)
                self._say(name, answer)
            case KernelGone():
                for lease in [lease for lease, owner in self._owners.items() if owner == name]:
                    self._end_lease(lease, "kernel ended")
        self.check()

    def check(self) -> None:
        """Assert that no GPU is leased twice."""
        gpus = [gpu for lease in self.leases.values() for gpu in lease.gpus]
        assert len(gpus) == len(set(gpus)), gpus

    def _ask(self, name: str, wish: LeaseWish) -> None:
        held = next((lease for lease in self.leases.values() if lease.request == wish.request), None)
        if held is not None:
            self._say(name, Granted(held))
        elif wish.gpus > (largest := max(map(len, self._gpus.values()))):
            self._say(name, Denied(wish.request, f"The largest possible request is {largest} GPUs."))
        else:
            self._waiting[wish.request] = (name, wish)
            self._serve_all()

    def _serve_all(self) -> None:
        for name, wish in list(self._waiting.values()):
            if self._grant(name, wish):
                del self._waiting[wish.request]
        for position, (name, wish) in enumerate(self._waiting.values(), start=1):
            self._say(name, Waiting(wish.request, position, 2.0))
            for lease in sorted(self.lingering):
                self._say(self._owners[lease], LeaseWanted(lease, self.leases[lease].fence, 30.0))

    def _grant(self, name: str, wish: LeaseWish) -> bool:
        own = [lease for lease in self.lingering if self._owners[lease] == name]
        for host in wish.hosts or self._homes.get(name, ()):
            taken = {gpu for lease in self.leases.values() if lease.lease not in own for gpu in lease.gpus}
            free = [gpu for gpu in self._gpus.get(host, ()) if gpu not in taken]
            if len(free) < wish.gpus:
                continue
            for lease in own:
                self._drop(lease)
                self._say(name, LeaseOver(lease, "reused"))
            self._fence += 1
            gpus = tuple(free[: wish.gpus])
            granted = GrantedLease(
                f"lease-{self._fence}",
                wish.request,
                HostName(host),
                gpus,
                self._fence,
                self._ttl_s,
                *self.price,
            )
            self.leases[granted.lease], self._owners[granted.lease] = granted, name
            self._say(name, Granted(granted))
            return True
        return False

    def _end_lease(self, lease: str, why: str) -> None:
        owner = self._owners.get(lease, "")
        self._drop(lease)
        self._say(owner, LeaseOver(lease, why))
        self._serve_all()

    def _drop(self, lease: str) -> None:
        self.leases.pop(lease, None)
        self._owners.pop(lease, None)
        self.lingering.discard(lease)

    def _say(self, name: str, message: FromScheduler) -> None:
        client = self._clients.get(name)
        if client is not None:
            with contextlib.suppress(WebSocketClosedError):
                client.write_message(encode(message), binary=True)

    def came(self, name: str, client: _Client) -> None:
        """Take note of a client that has said who it is."""
        self._clients[name] = client

    def went(self, client: _Client) -> None:
        """Take note that a client's connection is closed."""
        self._clients = {name: known for name, known in self._clients.items() if known is not client}


class _Status(RequestHandler):
    """Answers those who only look whether there is a scheduler."""

    def get(self) -> None:
        self.write({})


class _Client(WebSocketHandler):
    def initialize(self, scheduler: FakeScheduler) -> None:
        self.scheduler = scheduler
        self.name = ""

    async def prepare(self) -> None:
        if self.request.headers.get("Authorization") != f"token {TOKEN}":
            self.set_status(403)
            await self.finish()

    def open(self, *_: str) -> None:
        self.set_nodelay(True)

    def on_message(self, message: str | bytes) -> None:
        assert isinstance(message, bytes)
        decoded = decode_from_client(message)
        if isinstance(decoded, Hello):
            self.name = decoded.name if decoded.role == "router" else ""
            if self.name:
                self.scheduler.came(self.name, self)
            self.write_message(encode(Welcome(WIRE_VERSION, "tester")), binary=True)
        elif self.name:  # An agent is welcome, and what it offers is as good as known.
            self.scheduler.take(self.name, decoded)

    def on_close(self) -> None:
        self.scheduler.went(self)
