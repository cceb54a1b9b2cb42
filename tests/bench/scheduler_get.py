"""How long a GET keeps the scheduler's event loop from everything else, with 10,000 hosts and 100,000 cells.

A ticker on the same loop notes how long it had to wait for its turn, and how much the loop's thread computed
meanwhile; the figure is the most of the latter, which does not depend on what else the machine does. All GPUs
are leased, the other cells wait, and the accounts have a row for each of as many more.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from replkernel_scheduler.events import Event, HostUp, KernelReported, LeaseAsked
from replkernel_scheduler.types import (
    CellUsage,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    KernelSpec,
    LeaseId,
    LeaseRequest,
    RequestId,
    UserName,
)
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.journal_tables import Entry, UsageEntry
from replkernel_server.scheduling.settings import ServiceSettings
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from replkernel.leasing.wire import GpuUse
from tests.bench.report import Result

HOSTS, GPUS, CELLS, USERS = 10_000, 8, 100_000, 1_000
TICK_S = 0.001
GETS = {
    "/status": "/api/v1/status",
    "/kernels": "/api/v1/kernels",
    "/quotas": "/api/v1/quotas",
    "/accounting": "/api/v1/accounting?format=csv",
    "/accounting?by=kernel": "/api/v1/accounting?by=kernel",
    "/accounting?by=user": "/api/v1/accounting?by=user",
    "/metrics": "/metrics",
}


async def _admin(_: str) -> Identity:
    return Identity(UserName("root"), admin=True)


def events() -> Iterator[Event]:
    """Yield what makes the cluster: hosts, kernels on them, a cell of each."""
    for number in range(HOSTS):
        gpus = tuple(Gpu(GpuUuid(f"GPU-{number:05}-{gpu}"), "H100", 80.0) for gpu in range(GPUS))
        yield HostUp(HostName(f"host-{number:05}"), gpus, 128.0, 1024.0)
    order = list(range(CELLS))
    random.Random(1).shuffle(order)
    for number in order:
        kernel, user = KernelId(f"kernel-{number:06}"), UserName(f"user-{number % USERS:04}")
        host = HostName(f"host-{number % HOSTS:05}")
        yield KernelReported(KernelSpec(kernel, user, 1, 1), (host,))
        yield LeaseAsked(LeaseRequest(RequestId(f"cell-{number:06}"), kernel, 1, 86_400.0, (host,), user))


def accounts() -> Iterator[UsageEntry]:
    """Yield rows of the accounts."""
    for number in range(1, CELLS + 1):
        name = f"{number:06}"
        row = CellUsage(
            RequestId(f"old-{name}"),
            LeaseId(f"lease-{name}"),
            KernelId(f"kernel-{name}"),
            UserName(f"user-{number % USERS:04}"),
            HostName("host-00000"),
            1,
            1.0,
            2.0,
            3.0,
            4.0,
        )
        yield UsageEntry(number, 0, 1e9, msgspec.json.encode(row).decode())


class Ticker:
    """Notes how long it is kept waiting."""

    def __init__(self) -> None:
        """Begin."""
        self.longest_s = self.longest_cpu_s = 0.0
        self.task = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while True:
            began, began_cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - began - TICK_S)
            self.longest_cpu_s = max(self.longest_cpu_s, time.thread_time() - began_cpu)

    async def end(self) -> tuple[float, float]:
        """Return the longest wait, and the most that the loop's thread computed meanwhile."""
        await asyncio.sleep(0.01)
        self.task.cancel()
        return self.longest_s, self.longest_cpu_s


async def _asked(port: int, path: str) -> tuple[int, float, tuple[float, float]]:
    """Return how many bytes an answer has, the seconds that it took, and what the ticker says.

    The reader is a process of its own: reading is not what is measured.
    """
    ticker, began = Ticker(), time.perf_counter()
    curl = await asyncio.create_subprocess_exec(
        *("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{size_download}"),
        *("-H", "Authorization: token t", f"http://127.0.0.1:{port}{path}"),
        stdout=asyncio.subprocess.PIPE,
    )
    said = (await curl.communicate())[0].decode().split()
    took_s = time.perf_counter() - began
    if said[0] != "200":
        raise RuntimeError(f"{path} answers {said[0]}")
    return int(said[1]), took_s, await ticker.end()


async def _measure(directory: str) -> dict[str, dict[str, float]]:
    hosted = await Hosted.open(ServiceSettings(f"sqlite:///{Path(directory) / 'journal.sqlite'}"), _admin)
    core, now = hosted.driver.core, hosted.driver.clock.now()
    for event in events():
        core.handle(event, now)
    rows = list(accounts())
    for begin in range(0, len(rows), 10_000):
        number = begin // 10_000 + 1
        entry = Entry(number, now, 1e9, '{"type":"TimeReached"}', 0)
        hosted.driver.journal.append([entry], rows[begin : begin + 10_000])
    uses = {
        f"host-{host:05}": {
            f"GPU-{host:05}-{gpu}": GpuUse(f"GPU-{host:05}-{gpu}", 0.5, 40.0) for gpu in range(GPUS)
        }
        for host in range(HOSTS)
    }
    hosted.channel.desk.hosts.use_of = uses.__getitem__  # type: ignore[assignment,method-assign]
    gc.collect()
    gc.freeze()
    server, (socket, port) = HTTPServer(Application(hosted.routes())), bind_unused_port()
    server.add_socket(socket)
    idle = Ticker()
    await asyncio.sleep(2.0)
    waits = await idle.end()
    found = {
        "(nothing)": {"longest_ms": round(waits[0] * 1e3, 1), "longest_cpu_ms": round(waits[1] * 1e3, 1)}
    }
    for name, path in GETS.items():
        runs = [await _asked(port, path) for _ in range(2)]
        size, took_s, _ = runs[0]
        found[name] = {
            "MB": round(size / 1e6, 2),
            "s": round(took_s, 2),
            "longest_ms": round(max(run[2][0] for run in runs) * 1e3, 1),
            "longest_cpu_ms": round(max(run[2][1] for run in runs) * 1e3, 1),
        }
    server.stop()
    await hosted.close()
    await server.close_all_connections()
    return found


def measure() -> Result:
    """Measure every GET; it has no stock figure beside it."""
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(_measure(directory))
    longest = [figures["longest_cpu_ms"] for figures in found.values()]
    goal = f"at most 50 ms at {HOSTS} hosts and {CELLS} cells"
    return Result("scheduler_get", "ms the loop is kept by a GET", longest, [], goal, found)
