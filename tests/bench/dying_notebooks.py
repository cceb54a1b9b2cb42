"""How long GPUs lie idle though a cell wants them: twelve notebooks on eight GPUs, which die at random.

The service, its journal and its channel are real, the notebooks' routers are played. A cell asks for 1 to 4
GPUs, computes for a while and lets its state linger; who is asked gives back after 0.2 s. Now and then a
notebook dies without a word, in a cell, between two, or while it waits, and another one begins.
Of one that dies in a cell its host's agent says that its processes have ended.

Law: a GPU that two living notebooks have at once fails it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from replkernel.leasing.wire import (
    Granted,
    GrantedLease,
    KernelLeft,
    LeaseLingers,
    LeaseOver,
    LeaseShrank,
    LeaseWanted,
    LeaseWish,
)
from tests.bench.report import Result, quantile
from tests.bench.scheduler_rest import ROOT, START
from tests.support.lease_clients import Agent, Book, Router

SECONDS = float(os.environ.get("DYING_NOTEBOOKS_S", "180"))
NOTEBOOKS, GPUS = 12, 8
DIES = 0.02
"""How likely each step of a notebook is its last one."""
GIVES_BACK_S = 0.2
LOOK_S = 0.01
SHARE_MAX = 0.02


class Account:
    """Who waits and who computes, looked at again and again."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self.computing: dict[str, int] = {}
        self.moving: dict[str, int] = {}
        """GPUs whose state is on its way off them: they are not idle."""
        self.waits: list[float] = []
        self.idle_s = self.wanted_s = 0.0
        self.deaths = 0

    async def keep(self) -> None:
        """Add up GPU seconds until cancelled."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            idle, wanted = GPUS - sum(self.computing.values()) - sum(self.moving.values()), 0
            for gpus in (
                self.waiting.values()
            ):  # In the queue's order: the first that does not fit stops those behind.
                if gpus > idle - wanted:
                    break
                wanted += gpus
            self.idle_s += wanted * (now - before)
            self.wanted_s += sum(self.waiting.values()) * (now - before)
            self.wanted_s += sum(self.computing.values()) * (now - before)
            before = now


class Notebook:
    """One notebook from its first cell to its death."""

    def __init__(
        self, router: Router, agent: Agent, account: Account, book: Book, dice: random.Random
    ) -> None:
        self.router, self.agent, self.account, self.book, self.dice = router, agent, account, book, dice
        self.resting: dict[str, GrantedLease] = {}
        self.granted: asyncio.Future[GrantedLease] | None = None
        self.name = router.kernel_id
        self.dead = False

    async def live(self) -> None:
        """Run cells until death."""
        await self.router.open()
        hearing = asyncio.create_task(self._hear())
        try:
            for number in itertools.count():
                gpus = self.dice.choice((1, 1, 1, 2, 2, 4))
                lease = await self._ask(f"{self.name}-{number}", gpus)
                if lease is None:
                    return
                with self.book.holding(lease.request, lease.gpus):
                    self.account.computing[self.name] = gpus
                    await asyncio.sleep(self.dice.uniform(0.5, 4.0))
                    del self.account.computing[self.name]
                if self.dice.random() < DIES:
                    self._die()
                    self.agent.channel.send(KernelLeft(self.name))
                    return
                self.resting[lease.lease] = lease
                self.router.channel.send(
                    LeaseLingers(lease.lease, lease.fence, None, self.dice.uniform(0.0, 20.0))
                )
                if self.dice.random() < DIES:
                    return
                await asyncio.sleep(self.dice.uniform(0.0, 1.0))
        finally:
            self._die()
            hearing.cancel()
            await self.router.channel.close()

    def _die(self) -> None:
        if not self.dead:
            self.dead = True
            self.account.deaths += 1

    async def _ask(self, request: str, gpus: int) -> GrantedLease | None:
        """Wait for GPUs; return None if death comes first."""
        began = time.monotonic()
        self.granted = asyncio.get_running_loop().create_future()
        self.account.waiting[self.name] = gpus
        dies = self.dice.random() < DIES / 2
        try:
            self.router.channel.send(LeaseWish(request, gpus))
            lease = await asyncio.wait_for(self.granted, self.dice.uniform(0.0, 1.0) if dies else None)
        except TimeoutError:
            return None
        finally:
            del self.account.waiting[self.name]
        self.account.waits.append(time.monotonic() - began)
        return lease

    async def _hear(self) -> None:
        while True:
            match await self.router.messages.get():
                case Granted(lease) if self.granted is not None and not self.granted.done():
                    self.granted.set_result(lease)
                case LeaseOver(lease=name):
                    self.resting.pop(name, None)
                case LeaseShrank(lease):
                    self.resting[lease.lease] = lease
                case LeaseWanted(lease=name) if name in self.resting:
                    self.account.moving[name] = len(self.resting[name].gpus)
                    asyncio.get_running_loop().call_later(GIVES_BACK_S, self._give_back, name)

    def _give_back(self, name: str) -> None:
        lease = self.resting.pop(name, None)
        self.account.moving.pop(name, None)
        if lease is not None and not self.dead:
            with contextlib.suppress(AssertionError):
                self.router.give_back(lease)


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[tuple[str, str]]:
    """Start a service with directories of its own; yield its address and token."""
    with tempfile.TemporaryDirectory() as directory:
        paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "scheduler", ROOT / "server_ext"))
        environment = {**os.environ, "JUPYTER_DATA_DIR": directory, "PYTHONPATH": paths}
        command = [sys.executable, "-c", START]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: ASYNC220
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip().partition("=")[2]
                yield address, (Path(directory) / "replkernel" / "scheduler" / "token").read_text()
            finally:
                process.terminate()


async def _measure() -> Account:
    account, book, dice = Account(), Book(), random.Random(11)
    async with service() as (url, token):
        agent = Agent(url, token, "one", GPUS)
        await agent.open()
        names = (f"notebook-{number}" for number in itertools.count())
        until = time.monotonic() + SECONDS

        async def one_after_the_other() -> None:
            while time.monotonic() < until:
                router = Router(url, token, next(names), ("one",))
                notebook = Notebook(router, agent, account, book, random.Random(dice.random()))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(notebook.live(), max(0.1, until - time.monotonic()))

        keeping = asyncio.create_task(account.keep())
        await asyncio.gather(*(one_after_the_other() for _ in range(NOTEBOOKS)))
        keeping.cancel()
        await agent.close()
    return account


def measure() -> Result:
    """Play it; the share of wanted GPU seconds that were idle is told, with the waits."""
    account = asyncio.run(_measure())
    share = account.idle_s / account.wanted_s
    details = {
        "seconds": SECONDS,
        "cells": len(account.waits),
        "deaths": account.deaths,
        "idle_while_wanted_gpu_s": round(account.idle_s, 1),
        "wanted_gpu_s": round(account.wanted_s, 1),
        "share": round(share, 4),
        "wait_p50_s": round(quantile(account.waits, 50), 3),
        "wait_p95_s": round(quantile(account.waits, 95), 3),
        "longest_wait_s": round(max(account.waits), 2),
    }
    goal = f"GPUs that are idle while a cell wants them: at most {SHARE_MAX:.0%} of the GPU seconds wanted"
    return Result("dying_notebooks", "share", [share], [], goal, details)
