"""A scheduler's clients: the dead hold no GPUs, holders give back together, a new agent ends no cell.

Each scene prints how long the cell that wanted GPUs waited; `tests/e2e/test_holders_gone.py` has notebooks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from replkernel.leasing.wire import Granted, GrantedLease, LeaseKept, LeaseLingers, LeaseOver, LeaseWanted
from tests.support.breadth import first_of
from tests.support.lease_clients import Agent, Router, opened
from tests.support.lease_history import read_history
from tests.support.live import eventually
from tests.support.scheduler_service import Service, scheduler_files, serving


def told(scene: str, waited_s: float) -> None:
    print(f"{scene}: waited {waited_s:.2f} s")


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
    assert read_history(scheduler_files() / "journal.sqlite").ends == {"holder gone": 8, "kernel ended": 1}


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
            await keeps(router, lease)
            token = (scheduler_files() / "token").read_text()
            async with opened(Agent(service.url, token, "one", 1)):
                await becomes(service, "up")
                await keeps(router, lease)

    with serving() as service:
        asyncio.run(scene(service))


async def keeps(router: Router, lease: GrantedLease) -> None:
    """Say that a cell computes on; return once its lease is renewed, and fail if it is over instead."""
    assert router.channel.send(LeaseKept(lease.lease, lease.fence))
    async with asyncio.timeout(60):
        while not isinstance(said := await router.messages.get(), Granted):
            assert not isinstance(said, LeaseOver), said


async def becomes(service: Service, state: str) -> None:
    """Wait until the one host is listed so."""

    def is_so() -> bool:
        return [host["state"] for host in service.rest.get("status")[1]["hosts"]] == [state]

    await asyncio.to_thread(eventually, is_so, f"that the host is {state}")
