"""The scheduler is killed while agents and routers are connected: who comes back goes on as before."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from replkernel.leasing import wire
from tests.support.scheduler_client import Client, close_all, offer
from tests.support.scheduler_service import Service, no_gpu_was_ever_leased_twice, serving

HOSTS, GPUS, WAIT = 5, 4, 6
LEASES = HOSTS * GPUS
PATIENCE_S = 60.0
"""So long is waited for what the scheduler does by itself, seconds after who was there has gone."""


@pytest.fixture(autouse=True)
async def _clients_go() -> AsyncIterator[None]:
    yield
    await close_all()


class Cluster:
    """Agents and routers of one service; each of them says that it lives, and remembers what it holds."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.agents: dict[str, Client] = {}
        self.routers: dict[str, Client] = {}
        self.leases: dict[str, wire.GrantedLease] = {}

    async def agent(self, number: int) -> None:
        name = f"h{number}"
        self.agents[name] = await Client.hello(self.service.url, self.service.rest.token, "agent", name)
        self.agents[name].say(offer(name, GPUS))

    async def router(self, name: str, host: int, held: wire.GrantedLease | None = None) -> None:
        client = await Client.hello(self.service.url, self.service.rest.token, "router", name)
        told = () if held is None else (wire.HeldLease(held.lease, held.fence),)
        client.say(wire.KernelHere((f"h{host}",), leases=told), wire.LeaseWish(f"cell-{name}", 1))  # type: ignore[arg-type]
        self.routers[name] = client

    async def granted(self, name: str) -> wire.GrantedLease:
        lease = (await self.routers[name].hear(wire.Granted, PATIENCE_S)).lease
        self.leases[name] = lease
        return lease

    async def waits(self, name: str, host: int) -> None:
        """Have a router say its wish, and hear that it waits."""
        await self.router(name, host)
        assert (await self.routers[name].hear(wire.Waiting)).request == f"cell-{name}"

    async def goes_on(self, name: str, host: int, before: Cluster) -> None:
        """Have a router come back to the lease that it had before."""
        await self.router(name, host, before.leases[name])
        assert identity(await self.granted(name)) == identity(before.leases[name])

    async def live(self) -> None:
        """Beat and renew until cancelled."""
        while True:
            for agent in self.agents.values():
                agent.say(wire.HostBeat())
            for name, lease in self.leases.items():
                if name in self.routers:
                    self.routers[name].say(wire.LeaseKept(lease.lease, lease.fence))
            await asyncio.sleep(0.5)

    def known(self) -> dict[str, tuple[object, ...]]:
        found = self.service.rest.get("status")[1]["leases"]
        return {lease["request"]: (lease["lease"], tuple(lease["gpus"]), lease["fence"]) for lease in found}


def identity(lease: wire.GrantedLease) -> tuple[object, ...]:
    return lease.lease, lease.gpus, lease.fence


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_GRACE_S", "5")
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_AWAY_S", "5")
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_HOST_AWAY_S", "2")


@pytest.mark.usefixtures("_soon")
async def test_killed_with_twenty_leases_none_is_lost_none_doubled_and_the_queue_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as service:
        before = Cluster(service)
        living = asyncio.create_task(before.live())
        for number in range(HOSTS):
            await before.agent(number)
        for number in range(LEASES):
            await before.router(f"k{number}", number % HOSTS)
            await before.granted(f"k{number}")
        for number in range(WAIT):
            await before.waits(f"w{number}", number % HOSTS)
        living.cancel()
        service.kill()
    for name in ("GRACE_S", "AWAY_S"):  # Within it all others have to be back; it is waited for.
        monkeypatch.setenv(f"REPLKERNEL_SCHEDULER_{name}", "10")
    with serving() as service:
        after = Cluster(service)
        living = asyncio.create_task(after.live())
        assert after.known() == {f"cell-{name}": identity(lease) for name, lease in before.leases.items()}
        # At once: one after the other, all of them may take longer than the first has to come back.
        await asyncio.gather(*(after.agent(number) for number in range(HOSTS)))
        await asyncio.gather(
            *(after.goes_on(f"k{number}", number % HOSTS, before) for number in range(LEASES - 5)),
            *(after.waits(f"w{number}", number % HOSTS) for number in range(WAIT)),
        )
        for number in range(5):  # those whose routers never came back make room on each host
            lease = await after.granted(f"w{number}")
            assert lease.gpus == before.leases[f"k{LEASES - 5 + number}"].gpus
        assert len(after.known()) == LEASES
        kept = before.leases["k0"]
        after.leases.pop("k0")
        after.routers["k0"].say(wire.LeaseBack(kept.lease, kept.fence))
        assert (await after.granted("w5")).gpus == kept.gpus
        living.cancel()
        await close_all()
        assert service.end()[0] == 0
    assert no_gpu_was_ever_leased_twice() == LEASES + WAIT


@pytest.mark.usefixtures("_soon")
async def test_an_agent_and_a_router_that_do_not_come_back_are_given_up() -> None:
    with serving() as service:
        before = Cluster(service)
        await before.agent(0)
        await before.agent(1)
        await before.router("k", 0)
        await before.granted("k")
        await before.router("gone", 1)
        await before.granted("gone")
        service.kill()
    with serving() as service:
        after = Cluster(service)
        assert len(service.rest.get("status")[1]["hosts"]) == 2
        await after.agent(1)
        await after.router("k", 0, before.leases["k"])
        assert (await after.granted("k")).gpus == before.leases["k"].gpus
        living = asyncio.create_task(after.live())
        assert (await after.routers["k"].hear(wire.LeaseOver, PATIENCE_S)).why == "host down"
        async with asyncio.timeout(PATIENCE_S):
            while after.known():  # noqa: ASYNC110 - another process is looked at
                await asyncio.sleep(0.1)
        assert [host["name"] for host in service.rest.get("status")[1]["hosts"]] == ["h1"]
        living.cancel()


async def test_a_scheduler_that_is_held_up_takes_no_host_down() -> None:
    with serving() as service:
        cluster = Cluster(service)
        await cluster.agent(0)
        await cluster.router("k", 0)
        lease = await cluster.granted("k")
        living = asyncio.create_task(cluster.live())
        for _ in range(2):
            service.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(7.0)
            service.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(2.0)
        assert cluster.known() == {"cell-k": identity(lease)}
        living.cancel()
