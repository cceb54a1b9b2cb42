"""Agents and routers as the scheduler knows them, without a host and without a kernel behind them.

A router runs cells one after the other: it asks, waits, holds the GPUs for a moment, gives them back. Law:
while it holds GPUs it says so in a book that all share, which refuses a GPU that somebody holds already.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

from replkernel.leasing.channel import SchedulerChannel
from replkernel.leasing.wire import (
    BEAT_S,
    WIRE_VERSION,
    Denied,
    FromScheduler,
    Granted,
    GrantedLease,
    HeldLease,
    Hello,
    HostBeat,
    HostLeaves,
    HostOffer,
    KernelGone,
    KernelHere,
    LeaseBack,
    LeaseWish,
    OfferedGpu,
    Refused,
    Waiting,
)
from replkernel.records import HostName

UP_S = 30.0
CELL_S = 60.0


class Book:
    """Which GPU who holds, as the holders themselves say."""

    def __init__(self) -> None:
        self.holders: dict[str, str] = {}
        self.most = 0
        self.cells = 0

    @contextlib.contextmanager
    def holding(self, who: str, gpus: tuple[str, ...]):  # type: ignore[no-untyped-def]
        """Note that `who` computes on these GPUs; two at once on one of them is what must never be."""
        for gpu in gpus:
            assert gpu not in self.holders, f"{gpu} belongs to {self.holders[gpu]} and was given to {who}"
            self.holders[gpu] = who
        self.most = max(self.most, len(self.holders))
        self.cells += 1
        try:
            yield
        finally:
            for gpu in gpus:
                del self.holders[gpu]


class Client:
    """One channel, up or refused."""

    def __init__(self, url: str, token: str, hello: Hello) -> None:
        self.messages: asyncio.Queue[FromScheduler] = asyncio.Queue()
        self.up, self.lost = asyncio.Event(), asyncio.Event()
        self.refusal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.channel = SchedulerChannel(url, token, hello, self.messages.put_nowait, self.on_up, self.on_down)

    def on_up(self) -> None:
        self.up.set()

    def on_down(self, why: str) -> None:
        self.up.clear()
        self.lost.set()
        if not self.refusal.done():
            self.refusal.set_result(why)

    async def open(self) -> None:
        """Connect, and wait for the welcome."""
        self.channel.start()
        await asyncio.wait_for(self.up.wait(), UP_S)

    async def refused(self) -> str:
        """Connect, and wait to be sent away; return why."""
        self.channel.start()
        return await asyncio.wait_for(asyncio.shield(self.refusal), UP_S)


class Agent(Client):
    """An agent whose host has pretended GPUs."""

    def __init__(self, url: str, token: str, host: str, gpus: int) -> None:
        super().__init__(url, token, Hello(WIRE_VERSION, "agent", host))
        self.gpus = tuple(OfferedGpu(f"GPU-{host}-{number}", "pretended", 24.0) for number in range(gpus))
        self._beats: asyncio.Task[None] | None = None

    def on_up(self) -> None:
        super().on_up()
        self.channel.send(HostOffer(self.gpus))
        self._beats = self._beats or asyncio.get_running_loop().create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.channel.send(HostBeat())

    async def close(self) -> None:
        """Leave in order."""
        if self._beats is not None:
            self._beats.cancel()
        self.channel.send(HostLeaves())
        await self.channel.close()


class Router(Client):
    """A kernel's router on the hosts of its replicas."""

    def __init__(self, url: str, token: str, kernel_id: str, hosts: tuple[str, ...]) -> None:
        super().__init__(url, token, Hello(WIRE_VERSION, "router", kernel_id))
        self.kernel_id, self.hosts = kernel_id, tuple(HostName(host) for host in hosts)
        self.wish: LeaseWish | None = None
        self.held: dict[str, HeldLease] = {}
        self.positions: list[int] = []
        self._numbers = itertools.count(1)

    def on_up(self) -> None:
        super().on_up()
        self.channel.send(KernelHere(self.hosts, leases=tuple(self.held.values())))
        if self.wish is not None:
            self.channel.send(self.wish)

    async def ask(self, gpus: int, within_s: float = CELL_S) -> Granted | Denied | Refused:
        """Ask for GPUs until there is an answer that is none of waiting."""
        request = f"{self.kernel_id}-{next(self._numbers)}"
        self.wish = LeaseWish(request, gpus)
        assert self.channel.send(self.wish)
        answer = await self._answer(request, within_s)
        self.wish = None
        return answer

    async def _answer(self, request: str, within_s: float) -> Granted | Denied | Refused:
        while True:
            said = await asyncio.wait_for(self.messages.get(), within_s)
            match said:
                case Granted(lease) if lease.request == request:
                    self.held[lease.lease] = HeldLease(lease.lease, lease.fence)
                    return said
                case Denied(asked) if asked == request:
                    return said
                case Waiting(asked, position) if asked == request:
                    self.positions.append(position)
                case Refused():
                    return said

    def give_back(self, lease: GrantedLease) -> None:
        """The cell is over."""
        self.held.pop(lease.lease, None)
        assert self.channel.send(LeaseBack(lease.lease, lease.fence))

    async def cell(self, book: Book, gpus: int, seconds: float) -> str:
        """Run a cell on so many GPUs; return the host that it ran on, or raise what was said instead."""
        answer = await self.ask(gpus)
        assert isinstance(answer, Granted), answer
        lease = answer.lease
        assert len(lease.gpus) == gpus, lease
        with book.holding(lease.request, lease.gpus):
            await asyncio.sleep(seconds)
        self.give_back(lease)
        return lease.host

    async def close(self) -> None:
        """End the kernel."""
        self.channel.send(KernelGone())
        await self.channel.close()


@contextlib.asynccontextmanager
async def opened(*clients: Agent | Router) -> AsyncIterator[None]:
    """Let clients be there, all at once, and close them."""
    try:
        await asyncio.gather(*(client.open() for client in clients))
        yield
    finally:
        await asyncio.gather(*(client.close() for client in clients))
