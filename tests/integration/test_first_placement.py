"""A new kernel is placed by its request over REST, waits there, and becomes its router's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.settings import ServiceSettings
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from replkernel.leasing import wire
from replkernel.leasing.choosing import choose_hosts
from replkernel.leasing.request import GpuRequest
from replkernel.records import KernelId
from tests.integration.test_scheduler_rights import World, identify
from tests.support.scheduler_client import Client, close_all, offer

Told = tuple[int, Any]


async def until(ask: Callable[[], Awaitable[Told]], fits: Callable[[Told], bool]) -> Told:
    """Ask until the answer fits; the test's timeout bounds it."""
    told = await ask()
    while not fits(told):
        await asyncio.sleep(0.02)
        told = await ask()
    return told


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A service whose hosts a and b, of 4 and 3 GPUs, take 1.5 as many subscriptions."""
    policies = {"set": "notebook", "limit": "static"}
    hosted = await Hosted.open(
        ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}", policies=policies), identify
    )
    server = HTTPServer(Application(hosted.routes()))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    there = World(f"http://127.0.0.1:{port}", hosted)
    for name, gpus in (("a", 4), ("b", 3)):
        agent = await Client.hello(there.url, "r", "agent", name)
        agent.say(offer(name, gpus))
    await until(lambda: there.call("r", "GET", "status"), lambda told: len(told[1]["hosts"]) == 2)
    yield there
    await close_all()
    server.stop()
    await hosted.close()
    await server.close_all_connections()


async def place(world: World, name: str, gpus: int, who: str = "a", **more: Any) -> tuple[int, Any]:
    return await world.call(who, "POST", f"kernels/{name}/placement", {"gpus": gpus, "replicas": 1, **more})


async def test_the_limit_decides_and_who_finds_no_room_waits_until_there_is_some(world: World) -> None:
    assert await place(world, "one", 4) == (200, {"hosts": ["a"]})
    assert await place(world, "two", 3, "b") == (200, {"hosts": ["b"]})
    assert await place(world, "three", 3) == (202, {"missing": 1, "coming": 0})
    assert await place(world, "three", 3) == (202, {"missing": 1, "coming": 0})
    router = await Client.hello(world.url, "a", "router", "one")
    router.say(wire.KernelHere(("a",), 4))  # type: ignore[arg-type]
    await until(lambda: world.call("a", "GET", "kernels"), lambda told: told[1]["kernels"][0]["connected"])
    assert (await world.call("a", "GET", "kernels/three/placement"))[0] == 202
    router.say(wire.KernelGone())
    told = await until(lambda: world.call("a", "GET", "kernels/three/placement"), lambda told: told[0] != 202)
    assert told == (200, {"hosts": ["a"]})


async def test_an_impossible_placement_is_refused_with_the_reason(world: World) -> None:
    code, said = await place(world, "k", 9)
    assert code == 409 and "the largest possible request is 4" in said["why"]
    assert (await world.call("a", "GET", "kernels/k/placement"))[0] == 410
    for wrong in ({"gpus": 65}, {"replicas": 0}, {"cpu": -1}, {"memory_gb": 1e9}, {"gpu": 1}):
        code, said = await world.call("a", "POST", "kernels/k/placement", wrong)
        assert code == 400 and "does not fit" in said["why"], wrong
    assert (await place(world, "k", 1))[0] == 200
    code, said = await place(world, "k", 1, "b")
    assert code == 403 and "another user's" in said["why"]
    for number in range(63):
        assert (await place(world, f"k{number}", 0))[0] == 200
    code, said = await place(world, "one-more", 0)
    assert code == 429 and "64 kernels of alice are placed and have not begun" in said["why"]


async def test_a_router_is_told_where_to_begin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replkernel.leasing.choosing.find_agent", lambda host, _: host)
    monkeypatch.setattr("replkernel.leasing.choosing.find_scheduler", lambda _: (world.url, "a"))
    asks = [("one", 4), ("two", 3), ("three", 3)]
    found = [
        await asyncio.to_thread(choose_hosts, KernelId(name), 1, {}, GpuRequest(gpus)) for name, gpus in asks
    ]
    assert [hosts[0] for hosts, _ in found] == ["a", "b", found[2][0][0]]
    assert [bool(told) for _, told in found] == [False, False, True]
    assert "no host has room for it below the subscription limit" in found[2][1]
