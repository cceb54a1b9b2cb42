"""How long a cell's wish for a free GPU takes over the scheduler's channel, with its journal and without.

30 hosts with 8 GPUs each whose agents beat, 400 routers connected, 100 leases in force. The two services take
turns in blocks; the one beside ours is the same program whose journal goes nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from replkernel.leasing import wire
from tests.bench.report import Result
from tests.bench.scheduler_rest import GPUS, HOSTS, LEASES, NOWHERE, ROOT, START
from tests.support.scheduler_client import Client, close_all, offer

ROUTERS, BLOCKS, BLOCK = 400, 10, 50


class Cluster:
    """Everybody who is connected to one service; `asker` is who asks and gives back."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.agents: list[Client] = []
        self.asked = 0

    async def fill(self) -> None:
        """Connect agents and routers, and lease some GPUs."""
        for host in range(HOSTS):
            agent = await Client.hello(self.url, self.token, "agent", f"host-{host}")
            agent.say(offer(f"host-{host}", GPUS))
            self.agents.append(agent)
        self.beats = asyncio.create_task(self._beat())
        for number in range(ROUTERS):
            router = await Client.hello(self.url, self.token, "router", f"kernel-{number}")
            hosts = tuple(f"host-{(number + step) % HOSTS}" for step in range(3))
            router.say(wire.KernelHere(hosts, 1))  # type: ignore[arg-type]
            if number < LEASES:
                router.say(wire.LeaseWish(f"held-{number}", 1))
                await router.hear(wire.Granted)
        self.asker = router

    async def _beat(self) -> None:
        while True:
            for agent in self.agents:
                agent.say(wire.HostBeat())
            await asyncio.sleep(wire.BEAT_S)

    async def block(self) -> list[float]:
        """Ask and give back; return the milliseconds of asking."""
        samples = []
        for _ in range(BLOCK):
            self.asked += 1
            began = time.perf_counter()
            self.asker.say(wire.LeaseWish(f"cell-{self.asked}", 1))
            lease = (await self.asker.hear(wire.Granted)).lease
            samples.append((time.perf_counter() - began) * 1e3)
            self.asker.say(wire.LeaseBack(lease.lease, lease.fence))
            await self.asker.hear(wire.LeaseOver)
        return samples


@contextlib.asynccontextmanager
async def cluster(code: str) -> AsyncIterator[Cluster]:
    """Start a service with directories of its own, and fill it."""
    with tempfile.TemporaryDirectory() as directory:
        paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "scheduler", ROOT / "server_ext"))
        environment = {**os.environ, "JUPYTER_DATA_DIR": directory, "PYTHONPATH": paths}
        environment["REPLKERNEL_SCHEDULER_AWAY_S"] = "600"
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: ASYNC220
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip().partition("=")[2]
                token = (Path(directory) / "replkernel" / "scheduler" / "token").read_text()
                made = Cluster(address, token)
                await made.fill()
                yield made
                made.beats.cancel()
            finally:
                process.terminate()


async def _measure() -> tuple[list[float], list[float]]:
    ours: list[float] = []
    without: list[float] = []
    async with cluster(START) as journalled, cluster(NOWHERE + START) as forgetful:
        for _ in range(BLOCKS):
            ours += await journalled.block()
            without += await forgetful.block()
        await close_all()
    return ours, without


def measure() -> Result:
    """Take turns."""
    ours, without = asyncio.run(_measure())
    goal = "p50 at most 5 ms with the journal (the one beside is the same service without)"
    return Result(
        "scheduler_channel", "ms", ours, without, goal, {"hosts": HOSTS, "routers": ROUTERS, "leases": LEASES}
    )
