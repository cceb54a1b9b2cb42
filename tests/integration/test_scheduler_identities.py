"""A scheduler with many users: each request and connection is somebody's, for as long as his token is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from replkernel_scheduler.types import UserName, UserQuota
from replkernel_server.errors import JournalFull
from replkernel_server.handlers import channel as channel_handler
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.identity import Identity, IdentityUnknown
from replkernel_server.scheduling.settings import ServiceSettings
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from replkernel.leasing import wire
from tests.support.channel_server import until
from tests.support.scheduler_client import Client, Closed, close_all, offer

PREFIX = "/services/replkernel"
WISH = b'{"request": "r", "kernel_id": "k", "gpus": 1, "ttl_s": 60}'


class World:
    """A hosted scheduler, and who has which token."""

    def __init__(self) -> None:
        self.tokens = {
            "a": Identity(UserName("alice"), may_host=False),
            "b": Identity(UserName("bob"), may_host=False),
            "d": Identity(UserName("dave"), may_host=False, may_lease=False),
            "agents": Identity(UserName("service/agents"), may_lease=False),
        }
        self.away = False
        self.url = ""
        self.asked: Counter[str] = Counter()

    async def asked_again(self, token: str) -> None:
        """Wait until a token has been asked about twice more: what the first told counts by then."""
        before = self.asked[token]
        await until(lambda: self.asked[token] >= before + 2)

    async def identify(self, token: str) -> Identity | None:
        self.asked[token] += 1
        if self.away:
            raise IdentityUnknown("The Hub cannot be asked who you are.")
        return self.tokens.get(token)

    async def code(self, token: str, method: str, path: str, body: bytes | None = None) -> int:
        """Return the HTTP status of a request."""
        headers = {"Authorization": f"Bearer {token}"}
        answer = await AsyncHTTPClient().fetch(
            f"{self.url}/api/v1/{path}", method=method, headers=headers, body=body, raise_error=False
        )
        return answer.code


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(channel_handler, "RECHECK_S", 0.1)
    there = World()
    hosted = await Hosted.open(ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}"), there.identify)
    server = HTTPServer(Application(hosted.routes(PREFIX)))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    there.url = f"http://127.0.0.1:{port}{PREFIX}"
    yield there
    await close_all()
    server.stop()
    await hosted.close()
    await server.close_all_connections()


async def test_a_connection_ends_once_its_token_is_revoked(world: World) -> None:
    client = await Client.hello(world.url, "a", "router", "k")
    await world.asked_again("a")
    del world.tokens["a"]
    assert "not valid any more" in (await client.hear(wire.Refused)).why
    with pytest.raises(Closed):
        await client.hear(wire.Welcome)
    with pytest.raises(HTTPClientError, match="401"):
        await Client.hello(world.url, "a", "router", "k")


async def test_a_token_is_asked_about_again_although_the_journal_had_no_room_for_its_quota(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: Channel, identity: Identity) -> None:
        raise JournalFull("There is no room for the journal.")

    monkeypatch.setattr(Channel, "known_again", full)
    client = await Client.hello(world.url, "a", "router", "k")
    await until(lambda: world.asked["a"] >= 2)
    del world.tokens["a"]
    assert "not valid any more" in (await client.hear(wire.Refused)).why


async def test_a_connection_ends_once_its_user_may_not_lease_any_more(world: World) -> None:
    client = await Client.hello(world.url, "a", "router", "k")
    world.tokens["a"] = Identity(UserName("alice"), may_host=False, may_lease=False)
    assert "connect anew" in (await client.hear(wire.Refused)).why


async def test_connections_go_on_while_the_hub_is_away_and_nobody_new_comes(world: World) -> None:
    agent = await Client.hello(world.url, "agents", "agent", "h")
    agent.say(offer("h", 1))
    router = await Client.hello(world.url, "a", "router", "k")
    world.away = True
    await world.asked_again("a")
    router.say(wire.KernelHere(("h",)), wire.LeaseWish("one", 1))  # type: ignore[arg-type]
    assert (await router.hear(wire.Granted)).lease.host == "h"
    with pytest.raises(HTTPClientError, match="503"):
        await Client.hello(world.url, "b", "router", "other")
    assert await world.code("b", "GET", "status") == 503


async def test_a_quota_that_changes_counts_for_a_router_that_is_there_already(world: World) -> None:
    agent = await Client.hello(world.url, "agents", "agent", "h")
    agent.say(offer("h", 4))
    router = await Client.hello(world.url, "a", "router", "k")
    router.say(wire.KernelHere(("h",)), wire.LeaseWish("one", 2))  # type: ignore[arg-type]
    await router.hear(wire.Granted)
    world.tokens["a"] = Identity(UserName("alice"), may_host=False, quota=UserQuota(gpu_quota=2))
    await world.asked_again("a")
    router.say(wire.LeaseWish("two", 1))
    assert "gpu_quota of alice is 2" in (await router.hear(wire.Denied)).why


async def test_who_may_not_lease_or_host_is_told_so_and_let_go(world: World) -> None:
    for token, role, scope in (
        ("d", "router", "lease"),
        ("agents", "router", "lease"),
        ("a", "agent", "host"),
    ):
        client = await Client.connect(world.url, {"Authorization": f"token {token}"})
        client.say(wire.Hello(wire.WIRE_VERSION, role, "k"))  # type: ignore[arg-type]
        assert f"custom:replkernel:{scope}" in (await client.hear(wire.Refused)).why
    assert await world.code("d", "POST", "leases", WISH) == 403


async def test_a_kernel_that_ended_is_still_its_users(world: World) -> None:
    agent = await Client.hello(world.url, "agents", "agent", "h")
    agent.say(offer("h", 4))
    router = await Client.hello(world.url, "a", "router", "k")
    router.say(wire.KernelHere(("h",)), wire.LeaseWish("one", 1), wire.KernelGone())  # type: ignore[arg-type]
    await router.hear(wire.LeaseOver)
    thief = await Client.connect(world.url, {"Authorization": "token b"})
    thief.say(wire.Hello(wire.WIRE_VERSION, "router", "k"))
    assert "another user's" in (await thief.hear(wire.Refused)).why
    assert await world.code("b", "POST", "leases", WISH) == 403
