"""The dead hold no GPUs, holders give back at once and together, an agent started anew ends no cell.

Each scene prints how long the cell that wanted GPUs waited.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from jupyter_client import KernelManager

from replkernel.hosts.places import own_host
from replkernel.leasing.wire import Granted, LeaseKept, LeaseLingers, LeaseOver, LeaseWanted
from tests.support.breadth import first_of
from tests.support.lease_clients import Agent, Router, opened
from tests.support.lease_history import History, read_history
from tests.support.live import Live, eventually, kernel
from tests.support.scheduler_service import Service, scheduler_files, serving
from tests.support.stock import OURS

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

ON_GPU = (
    "%%gpu 1\nimport torch\nfrom replkernel.gpu.fake import put\nx = put(torch.ones(1000))\nprint('there')"
)
COMPUTES = "%%gpu 1\nimport time\nfor step in range({steps}): time.sleep(0.1)\nprint('done')"


@contextlib.contextmanager
def gpus(count: int) -> Iterator[Service]:
    """Run a scheduler, and an agent with pretended GPUs."""
    with serving() as service:
        host = own_host(os.environ)
        command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", host, "--fake-gpus", str(count)]
        agent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: service.rest.get("status")[1]["hosts"], "the agent")
            yield service
        finally:
            agent.terminate()
            agent.wait(30)


@contextlib.contextmanager
def notebook(directory: Path, name: str, manager: KernelManager | None = None) -> Iterator[Live]:
    (directory / name).mkdir()
    with kernel(directory / name, manager, REPLKERNEL_REPLICAS="1") as live:
        yield live


def history() -> History:
    """Return what the journal says, in which no GPU was leased twice."""
    return read_history(scheduler_files() / "journal.sqlite")


def phases(service: Service) -> list[str]:
    return [gpu["state"] for host in service.rest.get("status")[1]["hosts"] for gpu in host["gpus"]]


def told(scene: str, waited_s: float) -> None:
    print(f"{scene}: waited {waited_s:.2f} s")


def test_a_kernel_that_is_shut_down_at_once_leaves_its_gpu_to_the_next(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with gpus(1) as service, notebook(tmp_path, "b") as waits:
        manager = KernelManager(kernel_name=OURS)
        with notebook(tmp_path, "a", manager) as one:
            assert one.value(ON_GPU) == "there"
            eventually(lambda: phases(service) == ["lingering"], "that its state lingers")
            manager.shutdown_kernel(now=True)
            ran = waits.run("%%gpu 1\nprint('here')")
        assert ran.status == "ok", ran.error
        told("shutdown_kernel(now=True)", ran.said["queued_s"])
        service.kill()
    ends = history().ends
    assert ends.get("holder gone") == 1 and "not given back" not in ends


def test_a_notebook_whose_router_and_process_are_killed_leaves_its_gpu_to_the_next(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with gpus(1) as service, notebook(tmp_path, "b") as waits:
        manager = KernelManager(kernel_name=OURS)
        with notebook(tmp_path, "a", manager) as one:
            pid = int(one.value("import os; print(os.getpid())"))
            assert one.value(ON_GPU) == "there"
            eventually(lambda: phases(service) == ["lingering"], "that its state lingers")
            os.kill(manager.provisioner.pid, signal.SIGKILL)  # type: ignore[union-attr]
            os.kill(pid, signal.SIGKILL)
            ran = waits.run("%%gpu 1\nprint('here')")
        assert ran.status == "ok", ran.error
        told("kill -9 of router and process", ran.said["queued_s"])
        service.kill()
    assert "not given back" not in history().ends


@pytest.mark.slow
def test_a_notebook_whose_router_alone_is_killed_leaves_its_gpu_when_its_state_is_off(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with gpus(1) as service, notebook(tmp_path, "b") as waits:
        manager = KernelManager(kernel_name=OURS)
        with notebook(tmp_path, "a", manager) as one:
            pid = int(one.value("import os; print(os.getpid())"))
            assert one.value(ON_GPU) == "there"
            eventually(lambda: phases(service) == ["lingering"], "that its state lingers")
            os.kill(manager.provisioner.pid, signal.SIGKILL)  # type: ignore[union-attr]
            ran = waits.run("%%gpu 1\nprint('here')")
            assert Path(f"/proc/{pid}").exists(), "it has its state in host memory"
            os.kill(pid, signal.SIGKILL)
        assert ran.status == "ok", ran.error
        told("kill -9 of the router, the process lives", ran.said["queued_s"])
        service.kill()
    assert "not given back" not in history().ends


@pytest.mark.parametrize("holds", first_of("state on it", "nothing there"))
def test_a_notebook_gives_gpus_back_while_it_runs_a_cell_without(tmp_path: Path, holds: str) -> None:
    with gpus(1), notebook(tmp_path, "a") as one, notebook(tmp_path, "b") as waits:
        if holds == "state on it":
            pytest.importorskip("torch")
            assert one.value(ON_GPU) == "there"
        else:
            assert one.value("%%gpu 1\nprint('there')") == "there"
        began = tmp_path / "began"
        wanted = tmp_path / "wanted"
        long = one.client.execute(
            f"import pathlib, time\npathlib.Path({str(began)!r}).touch()\n"
            f"while not pathlib.Path({str(wanted)!r}).exists(): time.sleep(0.05)"
        )
        eventually(began.exists, "the cell without GPUs")
        ran = waits.run("%%gpu 1\nprint('here')")
        assert ran.status == "ok", ran.error
        told(f"the holder runs a cell without GPUs, {holds}", ran.said["queued_s"])
        wanted.touch()
        one.reply(long)
        after = one.run("print('quiet')")
        assert (after.out.strip(), after.err) == ("quiet", "")
        if holds == "state on it":
            assert one.value("%%gpu 1\nprint(float(x.sum()))") == "1000.0"


@contextlib.asynccontextmanager
async def played(service: Service, gpus: int, kernels: int) -> AsyncIterator[tuple[Agent, list[Router]]]:
    """Connect an agent and routers of kernels on its host."""
    token = (scheduler_files() / "token").read_text()
    agent = Agent(service.url, token, "one", gpus)
    routers = [Router(service.url, token, f"k{number}", ("one",)) for number in range(kernels)]
    async with opened(agent):
        await asyncio.to_thread(eventually, lambda: service.rest.get("status")[1]["hosts"], "the agent")
        async with opened(*routers):
            yield agent, routers


async def hold(router: Router, gpus: int) -> None:
    """Have a cell run and its state linger."""
    granted = await router.ask(gpus)
    assert isinstance(granted, Granted)
    lease = granted.lease
    router.channel.send(LeaseLingers(lease.lease, lease.fence))


async def cut(router: Router) -> None:
    """End a router's connection without a word, as its death does."""
    await router.channel.close()


async def obliging(router: Router, all_asked: asyncio.Barrier) -> None:
    """Give back what is asked for, once all holders were asked."""
    while not isinstance(said := await router.messages.get(), LeaseWanted):
        pass
    await all_asked.wait()
    lease = next(held for held in router.held.values() if held.lease == said.lease)
    await asyncio.sleep(0.3)
    router.give_back(lease)  # type: ignore[arg-type]


async def wants(router: Router, gpus: int) -> float:
    """Return how long a cell waits."""
    began = time.monotonic()
    assert isinstance(await router.ask(gpus), Granted)
    return time.monotonic() - began


@pytest.mark.slow
def test_eight_kernels_that_died_hold_up_nobody_each_in_turn() -> None:
    async def scene(service: Service) -> None:
        async with played(service, 8, 9) as (_, routers):
            for router in routers[:8]:
                await hold(router, 1)
            for router in routers[:8]:
                await cut(router)
            told("eight dead kernels, 8 GPUs wanted", await wants(routers[8], 8))

    with serving() as service:
        asyncio.run(scene(service))
        service.kill()
    assert history().ends == {"holder gone": 8, "kernel ended": 1}


@pytest.mark.slow
def test_three_cells_that_wait_get_their_gpus_from_three_holders_at_once() -> None:
    async def scene(service: Service) -> None:
        async with played(service, 3, 6) as (_, routers):
            for router in routers[:3]:
                await hold(router, 1)
            together = asyncio.Barrier(3)
            answers = [asyncio.create_task(obliging(router, together)) for router in routers[:3]]
            waited = await asyncio.gather(*(wants(router, 1) for router in routers[3:]))
            await asyncio.gather(*answers)
            for number, seconds in enumerate(waited, 1):
                told(f"cell {number} of three, three holders that take 0.3 s", seconds)

    with serving() as service:
        asyncio.run(scene(service))


@pytest.mark.slow
def test_a_host_that_is_lost_with_its_routers_holds_up_nobody_elsewhere() -> None:
    async def scene(service: Service) -> None:
        async with played(service, 1, 1) as (agent, routers):
            await hold(routers[0], 1)
            token = (scheduler_files() / "token").read_text()
            other = Agent(service.url, token, "two", 1)
            both = Router(service.url, token, "both", ("one", "two"))
            async with opened(other), opened(both):
                await agent.channel.close()
                await cut(routers[0])
                told("a host lost, another is there", await wants(both, 1))

    with serving() as service:
        asyncio.run(scene(service))


@pytest.mark.parametrize("way", first_of("it is killed", "it ends in order"))
def test_a_cell_computes_on_while_the_agent_of_its_host_is_started_anew(way: str) -> None:
    async def scene(service: Service) -> None:
        async with played(service, 1, 1) as (agent, (router,)):
            granted = await router.ask(1)
            assert isinstance(granted, Granted)
            lease = granted.lease
            if way == "it ends in order":
                await agent.close()
            else:
                await agent.channel.close()
            await becomes(service, "down")
            router.channel.send(LeaseKept(lease.lease, lease.fence))
            assert isinstance(await asyncio.wait_for(router.messages.get(), 10.0), Granted)
            token = (scheduler_files() / "token").read_text()
            async with opened(Agent(service.url, token, "one", 1)):
                await becomes(service, "up")
                router.channel.send(LeaseKept(lease.lease, lease.fence))
                said = await asyncio.wait_for(router.messages.get(), 10.0)
                assert not isinstance(said, LeaseOver)

    with serving() as service:
        asyncio.run(scene(service))


async def becomes(service: Service, state: str) -> None:
    """Wait until the one host is listed so."""

    def is_so() -> bool:
        return [host["state"] for host in service.rest.get("status")[1]["hosts"]] == [state]

    await asyncio.to_thread(eventually, is_so, f"that the host is {state}")
