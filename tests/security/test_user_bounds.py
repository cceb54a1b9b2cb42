"""One user of a Hub against all: what he may ask for, hold and send is bounded, and told by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from replkernel_scheduler.types import UserName
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.settings import read_service_settings
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from replkernel.errors import ProtocolMismatch
from replkernel.leasing import wire
from replkernel.records import HostName
from tests.support.scheduler_client import Client, close_all, offer

USERS = {
    "a": Identity(UserName("alice"), may_host=False),
    "m": Identity(UserName("mallory"), may_host=False),
    "r": Identity(UserName("root"), admin=True),
}
USER = "REPLKERNEL_SCHEDULER_USER_"


async def identify(token: str) -> Identity | None:
    return USERS.get(token)


Call = Callable[..., Any]


@contextlib.asynccontextmanager
async def scheduler(tmp_path: Path, **bounds: str) -> AsyncIterator[tuple[str, Call]]:
    """Serve with these bounds; give the address, and what calls the REST API as somebody."""
    env = {"REPLKERNEL_SCHEDULER_DB": f"sqlite:///{tmp_path / 'journal.sqlite'}"}
    env |= {USER + name.upper(): value for name, value in bounds.items()}
    hosted = await Hosted.open(read_service_settings(env), identify)
    server = HTTPServer(Application(hosted.routes()))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    url = f"http://127.0.0.1:{port}"

    async def call(token: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        answer = await AsyncHTTPClient().fetch(
            f"{url}/api/v1/{path}",
            method=method,
            headers={"Authorization": f"token {token}"},
            body=None if body is None else json.dumps(body),
            raise_error=False,
            allow_nonstandard_methods=True,
        )
        return answer.code, json.loads(answer.body)

    try:
        yield url, call
    finally:
        await close_all()
        server.stop()
        await hosted.close()
        await server.close_all_connections()


def wish(name: str, gpus: int = 1, **more: object) -> dict[str, object]:
    return {"request": name, "kernel_id": name, "gpus": gpus, "ttl_s": 60.0, **more}


async def test_requests_that_wait_are_bounded_user_by_user(tmp_path: Path) -> None:
    async with scheduler(tmp_path, requests="3") as (_, call):
        await call("r", "POST", "hosts", {"name": "h", "gpus": ["GPU-0"]})
        assert (await call("m", "POST", "leases", wish("m0")))[0] == 201
        for number in range(1, 4):
            assert (await call("m", "POST", "leases", wish(f"m{number}")))[0] == 202
        status, said = await call("m", "POST", "leases", wish("m4"))
        assert status == 429
        assert "mallory has 3 requests that wait" in said["why"]
        assert USER + "REQUESTS" in said["why"]
        assert (await call("m", "POST", "leases", wish("m3")))[0] == 202, "one that is known is told"
        assert (await call("a", "POST", "leases", wish("a0")))[0] == 202
        assert (await call("m", "DELETE", "requests/m2"))[0] == 200
        assert (await call("m", "POST", "leases", wish("m4")))[0] == 202


async def test_leases_are_bounded_for_no_gpus_as_well(tmp_path: Path) -> None:
    async with scheduler(tmp_path, leases="2") as (_, call):
        await call("r", "POST", "hosts", {"name": "h", "gpus": ["GPU-0"]})
        granted = [await call("m", "POST", "leases", wish(f"m{number}", 0)) for number in range(2)]
        assert [status for status, _ in granted] == [201, 201]
        status, said = await call("m", "POST", "leases", wish("m2", 0))
        assert (status, "mallory has 2 leases at once" in said["why"]) == (429, True)
        lease = granted[0][1]["lease"]
        assert (await call("m", "DELETE", f"leases/{lease['lease']}?fence={lease['fence']}"))[0] == 200
        assert (await call("m", "POST", "leases", wish("m2", 0)))[0] == 201


async def test_a_router_is_held_to_the_same_bounds(tmp_path: Path) -> None:
    async with scheduler(tmp_path, requests="2") as (url, _):
        agent = await Client.hello(url, "r", "agent", "h")
        agent.say(offer("h", 1))
        router = await Client.hello(url, "m", "router", "k")
        router.say(wire.KernelHere(("h",), 1), wire.LeaseWish("one", 1))  # type: ignore[arg-type]
        await router.hear(wire.Granted)
        router.say(*(wire.LeaseWish(f"w{number}", 1) for number in range(3)))
        denied = await router.hear(wire.Denied)
        assert denied.request == "w2"
        assert "REQUESTS" in denied.why


async def test_connections_are_bounded_user_by_user(tmp_path: Path) -> None:
    async with scheduler(tmp_path, connections="2") as (url, _):
        for number in range(2):
            await Client.hello(url, "m", "router", f"m{number}")
        third = await Client.connect(url, {"Authorization": "token m"})
        third.say(wire.Hello(wire.WIRE_VERSION, "router", "m2"))
        assert "mallory has 2 connections" in (await third.hear(wire.Refused)).why
        await Client.hello(url, "a", "router", "a0")


async def test_calls_are_bounded_by_rate(tmp_path: Path) -> None:
    async with scheduler(tmp_path, calls_per_s="1") as (_, call):
        answers = await asyncio.gather(*(call("m", "GET", "status") for _ in range(40)))
        refused = [said for status, said in answers if status == 429]
        assert len(refused) >= 15
        assert "calls a second" in refused[0]["why"]
        assert (await call("a", "GET", "status"))[0] == 200
        assert all(status == 200 for status, _ in [await call("r", "GET", "status") for _ in range(30)])


async def test_messages_are_bounded_over_all_connections(tmp_path: Path) -> None:
    async with scheduler(tmp_path, messages_per_s="1") as (url, _):
        routers = [await Client.hello(url, "m", "router", f"m{number}") for number in range(3)]
        for router in routers:
            router.say(*(wire.WishOver(f"w{number}") for number in range(40)))
        assert "messages a second" in (await routers[-1].hear(wire.Refused)).why


@pytest.mark.parametrize("count", [65, 1000])
async def test_a_body_names_no_more_hosts_than_a_kernel_may_have(tmp_path: Path, count: int) -> None:
    async with scheduler(tmp_path) as (_, call):
        names = [f"host-{number}" for number in range(count)]
        assert (await call("m", "POST", "leases", wish("m", hosts=names)))[0] == 400


@pytest.mark.parametrize(
    "message",
    [
        wire.MoveWish(HostName("h" * 100_000)),
        wire.KernelHere((HostName("h" * 100_000),)),
        wire.LeaseWish("r", 1, (HostName("h" * 100_000),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_name_of_a_host_is_no_place_to_fill_the_journal(message: wire.FromClient) -> None:
    with pytest.raises(ProtocolMismatch):
        wire.decode_from_client(wire.encode(message))
