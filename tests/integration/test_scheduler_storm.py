"""Twelve kernels share eight GPUs while the scheduler is killed again and again: every cell runs, alone."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, ExitStack

from replkernel.leasing import wire
from tests.support.lease_clients import Agent, Book, Router, opened
from tests.support.scheduler_service import Service, no_gpu_was_ever_leased_twice, serving

KERNELS, CELLS, KILLS = 12, 6, 3
CELL_S = 90.0


class Notebook(Router):
    """A router that tells again what it holds and wants whenever it is welcomed, and then goes on."""

    def __init__(self, url: str, token: str, name: str) -> None:
        super().__init__(url, token, name, ("h1", "h2"))
        self.dice = random.Random(name)
        self.wish: wire.LeaseWish | None = None
        self.lease: wire.GrantedLease | None = None
        self.over: list[wire.LeaseOver] = []
        self.granted: asyncio.Future[wire.GrantedLease] | None = None

    def on_up(self) -> None:
        self.up.set()
        held = () if self.lease is None else (wire.HeldLease(self.lease.lease, self.lease.fence),)
        self.channel.send(wire.KernelHere(self.hosts, leases=held))
        if self.wish is not None:
            self.channel.send(self.wish)

    def take(self, message: wire.FromScheduler) -> None:
        """Take what the scheduler says."""
        wanted = self.wish is not None and self.granted is not None
        if isinstance(message, wire.Granted) and wanted and message.lease.request == self.wish.request:  # type: ignore[union-attr]
            self.wish, self.lease = None, message.lease
            self.granted.set_result(message.lease)  # type: ignore[union-attr]
        elif isinstance(message, wire.LeaseOver) and self.lease and message.lease == self.lease.lease:
            self.over.append(message)
        elif isinstance(message, wire.Denied | wire.Refused):
            raise AssertionError(message.why)

    async def run(self, book: Book) -> None:
        """Run all cells, one after the other."""
        listening = asyncio.create_task(self._listen())
        for number in range(CELLS):
            self.granted = asyncio.get_running_loop().create_future()
            self.wish = wire.LeaseWish(f"{self.kernel_id}-{number}", self.dice.randint(1, 4))
            self.channel.send(self.wish)
            lease = await asyncio.wait_for(self.granted, CELL_S)
            with book.holding(lease.request, lease.gpus):
                await asyncio.sleep(self.dice.uniform(0.05, 0.6))
            assert self.over == [], "nobody else was given its GPUs meanwhile"
            self.lease = None
            self.channel.send(wire.LeaseBack(lease.lease, lease.fence))  # may get lost
        listening.cancel()

    async def _listen(self) -> None:
        while True:
            self.take(await self.messages.get())


async def test_every_cell_runs_and_no_gpu_is_leased_twice_though_the_scheduler_is_killed() -> None:
    book = Book()
    with ExitStack() as services:
        service: Service = services.enter_context(serving())
        port = service.url.rpartition(":")[2]
        agents = [Agent(service.url, service.rest.token, name, 4) for name in ("h1", "h2")]
        kernels = [Notebook(service.url, service.rest.token, f"k{number}") for number in range(KERNELS)]
        async with AsyncExitStack() as there:
            await there.enter_async_context(opened(*agents))
            await there.enter_async_context(opened(*kernels))
            cells = asyncio.gather(*(kernel.run(book) for kernel in kernels))
            for kill in range(KILLS):
                while book.cells < (kill + 1) * KERNELS:  # noqa: ASYNC110 - the book has no bell
                    await asyncio.sleep(0.05)
                service.kill()
                service = await asyncio.to_thread(lambda: services.enter_context(serving("--port", port)))
            await asyncio.wait_for(cells, CELL_S)
        assert book.cells == KERNELS * CELLS and book.most <= 8
        assert service.end()[0] == 0
    assert no_gpu_was_ever_leased_twice() >= KERNELS * CELLS
