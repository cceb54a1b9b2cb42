"""The scheduler's channel: what agents and routers say to a real service, and what they hear."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClosedError

from replkernel.leasing import wire
from tests.support.scheduler_client import Client, close_all, offer
from tests.support.scheduler_service import Service, serving

FLOOD_S = 60.0


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
async def _clients_go() -> AsyncIterator[None]:
    yield
    await close_all()


async def agent(service: Service, name: str = "a", gpus: int = 2) -> Client:
    client = await Client.hello(service.url, service.rest.token, "agent", name)
    client.say(offer(name, gpus))
    await until(lambda: name in [host["name"] for host in status(service)["hosts"]])
    return client


async def router(service: Service, name: str = "k", hosts: str = "a", *leases: wire.HeldLease) -> Client:
    client = await Client.hello(service.url, service.rest.token, "router", name)
    client.say(wire.KernelHere(tuple(hosts.split()), leases=leases))  # type: ignore[arg-type]
    return client


def status(service: Service) -> dict[str, list[dict[str, object]]]:
    return service.rest.get("status")[1]  # type: ignore[no-any-return]


def states(service: Service) -> list[object]:
    return [host["state"] for host in status(service)["hosts"]]


async def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - another process is looked at
            await asyncio.sleep(0.05)


async def test_a_host_with_an_agent_is_not_registered_over_it_and_its_cells_go_on(service: Service) -> None:
    await agent(service, "a", 2)
    one = await router(service)
    one.say(wire.LeaseWish("cell-1", 2))
    lease = (await one.hear(wire.Granted)).lease
    code, answer = service.rest.call("POST", "hosts", {"name": "a", "gpus": ["GPU-other"]})
    assert (code, answer["why"]) == (
        409,
        "Host a has an agent, which says what it offers: stop that agent first.",
    )
    host = status(service)["hosts"][0]
    assert [gpu["lease"] for gpu in host["gpus"]] == [lease.lease] * 2  # type: ignore[attr-defined]


async def test_a_lease_from_the_wish_to_its_end(service: Service) -> None:
    await agent(service, "a", 2)
    one = await router(service)
    one.say(wire.LeaseWish("cell-1", 2))
    lease = (await one.hear(wire.Granted)).lease
    assert (lease.request, lease.host, lease.gpus) == ("cell-1", "a", ("GPU-a-0", "GPU-a-1"))
    assert 590 < lease.ttl_s <= 600
    one.say(wire.LeaseKept(lease.lease, lease.fence))
    assert (await one.hear(wire.Granted)).lease.fence == lease.fence
    two = await router(service, "other")
    two.say(wire.LeaseWish("cell-2", 1))
    assert await two.hear(wire.Waiting) == wire.Waiting("cell-2", 1)
    one.say(wire.LeaseLingers(lease.lease, lease.fence, 0.5))
    wanted = await one.hear(wire.LeaseWanted)
    assert (wanted.lease, wanted.fence) == (lease.lease, lease.fence) and 0 < wanted.within_s <= 30
    one.say(wire.LeaseBack(lease.lease, lease.fence))
    assert await one.hear(wire.LeaseOver) == wire.LeaseOver(lease.lease, "released")
    newer = (await two.hear(wire.Granted)).lease
    assert newer.fence > lease.fence and newer.gpus == ("GPU-a-0",)
    two.say(wire.KernelGone())
    assert (await two.hear(wire.LeaseOver)).why == "kernel ended"
    assert status(service)["leases"] == []


async def test_a_cell_keeps_its_gpus_where_its_state_lingers(service: Service) -> None:
    await agent(service, "a", 4)
    one = await router(service)
    one.say(wire.LeaseWish("cell-1", 2))
    lease = (await one.hear(wire.Granted)).lease
    one.say(wire.LeaseLingers(lease.lease, lease.fence), wire.LeaseWish("cell-2", 1))
    newer = (await one.hear(wire.Granted)).lease
    assert newer.gpus == lease.gpus[:1]
    assert [
        (said.lease.lease, said.lease.gpus) for said in one.heard if isinstance(said, wire.LeaseShrank)
    ] == [(lease.lease, lease.gpus[1:])]


async def test_who_waits_may_leave_the_queue_and_what_nobody_has_is_denied(service: Service) -> None:
    await agent(service, "a", 1)
    one = await router(service)
    one.say(wire.LeaseWish("one", 1))
    lease = (await one.hear(wire.Granted)).lease
    one.say(wire.LeaseWish("two", 1))
    await one.hear(wire.Waiting)
    one.say(wire.WishOver("two"), wire.LeaseWish("three", 4))
    assert await one.hear(wire.Denied) == wire.Denied(
        "three",
        "No host of a has 4 GPUs; the largest possible request is "
        "1 H100 GPU of 80 GiB, 16 cores, 64 GiB of memory.",
    )
    assert status(service)["queue"] == []
    one.say(wire.LeaseBack("lease-1", lease.fence), wire.LeaseKept(lease.lease, lease.fence - 1))
    assert (await one.hear(wire.LeaseOver)).lease == "lease-1"
    assert (await one.hear(wire.LeaseOver)).lease == lease.lease, "an older fence is nobody's"
    assert len(status(service)["leases"]) == 1


async def test_a_wish_comes_before_its_host_and_is_served_when_the_agent_is_there(service: Service) -> None:
    one = await router(service)
    one.say(wire.LeaseWish("early", 1))
    assert await one.hear(wire.Waiting) == wire.Waiting("early", 0)
    await agent(service)
    assert (await one.hear(wire.Granted)).lease.request == "early"


async def test_a_router_touches_its_kernels_leases_alone(service: Service) -> None:
    await agent(service, "a", 2)
    one, two = await router(service, "k1"), await router(service, "k2")
    one.say(wire.LeaseWish("cell", 1))
    lease = (await one.hear(wire.Granted)).lease
    two.say(wire.LeaseBack(lease.lease, lease.fence), wire.LeaseWish("cell", 1), wire.WishOver("cell"))
    assert (await two.hear(wire.LeaseOver)).lease == lease.lease
    assert "another kernel's" in (await two.hear(wire.Denied)).why
    two.say(wire.LeaseWish("own", 1, ("b",)))  # type: ignore[arg-type]
    assert "not on b" in (await two.hear(wire.Denied)).why
    assert [found["lease"] for found in status(service)["leases"]] == [lease.lease]


async def test_an_agent_that_says_goodbye_takes_its_host_down_and_what_computes_there_goes_on(
    service: Service,
) -> None:
    host = await agent(service)
    one = await router(service)
    one.say(wire.LeaseWish("cell", 1))
    lease = (await one.hear(wire.Granted)).lease
    host.say(wire.HostLeaves())
    await until(lambda: states(service) == ["down"])
    one.say(wire.LeaseKept(lease.lease, lease.fence))
    assert (await one.hear(wire.Granted)).lease.lease == lease.lease
    assert states(service) == ["down"]
    again = await agent(service)
    await until(lambda: states(service) == ["up"])
    one.say(wire.LeaseBack(lease.lease, lease.fence))
    await one.hear(wire.LeaseOver)
    assert states(service) == ["up"]
    again.say(wire.HostLeaves())
    await until(lambda: not status(service)["hosts"])


async def test_a_host_lives_as_long_as_one_of_its_agents_is_heard(service: Service) -> None:
    first, second = await agent(service), await agent(service)
    first.say(wire.HostLeaves())
    for _ in range(8):
        await asyncio.sleep(1.0)
        second.say(wire.HostBeat((wire.GpuUse("GPU-a-0", 0.5, 3.0),)))
    assert states(service) == ["up"]
    second.close()
    await until(lambda: states(service) == ["down"])


async def test_a_second_connection_of_a_kernel_replaces_the_first(service: Service) -> None:
    await agent(service)
    one = await router(service)
    one.say(wire.LeaseWish("cell", 1))
    lease = (await one.hear(wire.Granted)).lease
    again = await router(
        service, "k", "a", wire.HeldLease(lease.lease, lease.fence), wire.HeldLease("lease-9", 9)
    )
    assert "newer connection" in await one.refusal()
    assert (await again.hear(wire.LeaseOver)).lease == "lease-9"
    again.say(wire.LeaseKept(lease.lease, lease.fence))
    renewed = await again.hear(wire.Granted)
    assert renewed.lease.lease == lease.lease


async def test_nobody_is_heard_without_the_token(service: Service) -> None:
    for headers in ({}, {"Authorization": "token wrong"}, {"Authorization": "token " + "x" * 5000}):
        with pytest.raises(HTTPClientError) as refused:
            await Client.connect(service.url, headers)
        assert refused.value.code == 401


async def drowned(service: Service) -> str:
    """Send without a pause until that is refused: for a while a service may take fewer than it allows."""
    client = await Client.hello(service.url, service.rest.token, "router", "k")
    told = asyncio.create_task(client.hear(wire.Refused, FLOOD_S))
    message = wire.encode(wire.WishOver("r"))
    with contextlib.suppress(WebSocketClosedError):  # It may be refused and closed in the midst of them.
        while not told.done():
            await client.connection.write_message(message, binary=True)
    why = (await told).why
    await client.gone()
    return why


async def test_a_malformed_message_is_refused_by_name_and_the_rest_goes_on(service: Service) -> None:
    headers = {"Authorization": f"Bearer {service.rest.token}"}

    async def refused(*frames: bytes | str) -> str:
        client = await Client.connect(service.url, headers)
        for frame in frames:
            await client.connection.write_message(frame, binary=isinstance(frame, bytes))
        return await client.refusal()

    hello = wire.encode(wire.Hello(wire.WIRE_VERSION, "router", "k"))
    assert "does not fit" in await refused(b"\xff")
    assert "is text" in await refused("{}")
    assert "Hello is the first" in await refused(wire.encode(wire.KernelGone()))
    assert "speaks version 99" in await refused(wire.encode(wire.Hello(99, "router", "k")))
    assert "comes once" in await refused(hello, hello)
    assert "control characters" in await refused(wire.encode(wire.Hello(wire.WIRE_VERSION, "agent", "a\n")))
    assert "messages a second" in await drowned(service)
    client = await Client.connect(service.url, headers)
    assert "No Hello came" in await client.refusal()
    big = await Client.hello(service.url, service.rest.token, "router", "big")
    big.connection.write_message(b"x" * (wire.MESSAGE_BYTES_MAX + 1), binary=True)
    await big.gone()
    one = await router(service)
    one.say(wire.HostBeat())
    assert "for agents to say" in (await one.hear(wire.Refused)).why
    one.say(wire.WishOver("nothing"))
    assert status(service)["hosts"] == []
