"""A service asks the Hub whom a token stands for: users, services, revoked tokens, a Hub that is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from replkernel_scheduler.types import UserQuota
from replkernel_server.scheduling.identity import IdentityUnknown, NotYours
from tornado.web import RequestHandler

from tests.support.asked_hub import ACCESS, asked_hub
from tests.support.needs import need

need("jupyterhub")

LEASE = "custom:replkernel:lease"


class StandInHub:
    """The two addresses of the Hub that are asked; `asked` is how often each was."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.broken = 0

    def user(self, token: str, name: str, scopes: tuple[str, ...] = (ACCESS, LEASE), **more: object) -> None:
        model = {"name": name, "kind": "user", "admin": False, "groups": [], "scopes": list(scopes)}
        self.users[token] = model | more

    def answer(self, handler: RequestHandler, path: str) -> None:
        self.asked.append(path)
        token = handler.request.headers["Authorization"].removeprefix("token ")
        if self.broken:
            handler.set_status(self.broken)
        elif path == "user":
            found = self.users.get(token)
            handler.set_status(200 if found else 403)
            handler.finish(json.dumps(found or {"status": 403, "message": "Forbidden"}))
        else:
            properties = self.groups.get(path.removeprefix("groups/")) if token == "service" else None
            handler.set_status(404 if properties is None else 200)
            handler.finish(json.dumps({"properties": properties}))


@pytest.fixture
async def hub() -> AsyncIterator[tuple[StandInHub, Any]]:
    """Return a stand-in and what makes a HubIdentify that asks it, with its cache time."""
    there = StandInHub()
    async with asked_hub(there.answer) as make:
        yield there, make


async def test_a_user_with_the_quota_of_his_groups(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.user("a", "alice", groups=["small", "big", "gone"])
    there.groups |= {"small": {"gpu_quota": 1, "priority": 3}, "big": {"gpu_quota": 4}}
    alice = await make()("a")
    assert (alice.user, alice.admin, alice.may_lease, alice.may_host) == ("alice", False, True, False)
    assert alice.quota == UserQuota(4, None, 3)


async def test_an_agents_service_may_offer_hosts_and_has_no_quota(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.users["s"] = {"name": "agents", "kind": "service", "scopes": [ACCESS, "custom:replkernel:host"]}
    agents = await make()("s")
    assert (agents.user, agents.may_host, agents.may_lease, agents.quota) == (
        "service/agents",
        True,
        False,
        None,
    )


async def test_a_service_is_never_taken_for_the_user_of_its_name(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.users["s"] = {"name": "alice", "kind": "service", "scopes": [ACCESS]}
    assert (await make()("s")).user != "alice"


async def test_admins_are_known(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.user("r", "root", (ACCESS, LEASE, "admin:servers"), admin=True)
    assert (await make()("r")).admin


async def test_overseers_are_known_and_are_no_admins(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.user("o", "olga", (ACCESS, LEASE, "custom:replkernel:see"))
    olga = await make()("o")
    assert olga.sees_all and not olga.admin
    there.user("a", "alice")
    assert not (await make()("a")).sees_all


async def test_a_token_that_nobody_has_and_none_at_all(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    identify = make()
    assert await identify("nobody's") is None
    assert await identify("") is None
    assert there.asked == ["user"]


async def test_a_token_without_access_to_the_service_is_refused_by_the_scopes_name(
    hub: tuple[StandInHub, Any],
) -> None:
    there, make = hub
    there.user("b", "bob", scopes=("read:users!user=bob",))
    with pytest.raises(NotYours, match="access:services!service=replkernel"):
        await make()("b")


async def test_a_user_without_the_leases_scope_may_come_and_not_lease(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.user("b", "bob", scopes=(ACCESS,))
    assert not (await make()("b")).may_lease


async def test_the_hub_is_asked_once_while_the_answer_is_kept_and_by_many_at_once(
    hub: tuple[StandInHub, Any],
) -> None:
    there, make = hub
    there.user("a", "alice", groups=["g"])
    there.groups["g"] = {}
    identify = make()
    await asyncio.gather(*(identify("a") for _ in range(20)))
    await identify("a")
    assert sorted(there.asked) == ["groups/g", "user"]


async def test_a_revoked_token_is_refused_once_the_answer_is_too_old(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.user("a", "alice")
    kept, fresh = make(60.0), make(0.0)
    assert (await kept("a")).user == (await fresh("a")).user == "alice"
    del there.users["a"]
    assert (await kept("a")).user == "alice"
    assert await fresh("a") is None


async def test_a_hub_that_is_away_makes_nobody_known_and_is_asked_again(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.user("a", "alice")
    there.broken = 502
    identify = make(0.0)
    with pytest.raises(IdentityUnknown, match="Hub cannot be asked"):
        await identify("a")
    there.broken = 0
    assert (await identify("a")).user == "alice"


async def test_a_group_whose_property_makes_no_sense_is_named(hub: tuple[StandInHub, Any]) -> None:
    there, make = hub
    there.user("a", "alice", groups=["g"])
    there.groups["g"] = {"gpu_quota": "many"}
    with pytest.raises(IdentityUnknown, match="gpu_quota of the Hub's group g"):
        await make()("a")
