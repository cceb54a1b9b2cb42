"""A flood of tokens that nobody has: whoever is known stays known, and is asked about beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from replkernel_server.scheduling.identity import IdentityUnknown
from tornado.web import RequestHandler

from tests.support.asked_hub import ACCESS, asked_hub
from tests.support.needs import need

need("jupyterhub")


class SlowHub:
    """Knows alice; takes `slow_s` to say that it does not know somebody else."""

    def __init__(self) -> None:
        self.slow_s = 0.0
        self.asked: list[str] = []

    async def answer(self, handler: RequestHandler, path: str) -> None:
        assert path == "user"
        token = handler.request.headers["Authorization"].removeprefix("token ")
        self.asked.append(token)
        if token == "alice":
            model = {"name": "alice", "kind": "user", "admin": False, "groups": [], "scopes": [ACCESS]}
            handler.finish(json.dumps(model))
            return
        await asyncio.sleep(self.slow_s)
        handler.set_status(403)
        handler.finish(json.dumps({"status": 403, "message": "Forbidden"}))


@pytest.fixture
async def hub() -> AsyncIterator[tuple[SlowHub, Any]]:
    """Return a slow Hub, and what makes a HubIdentify that asks it, with its cache time."""
    there = SlowHub()
    async with asked_hub(there.answer) as make:
        yield there, make


async def test_a_flood_of_unknown_tokens_displaces_nobody(
    hub: tuple[SlowHub, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from replkernel_server.scheduling import hub_identity

    monkeypatch.setattr(hub_identity, "KEPT_MAX", 50)
    there, make = hub
    identify = make()
    assert (await identify("alice")).user == "alice"
    for start in range(0, 200, 10):
        await asyncio.gather(*(identify(f"unknown-{start + number}") for number in range(10)))
    assert (await identify("alice")).user == "alice"
    assert there.asked.count("alice") == 1


async def test_who_was_known_is_asked_about_beside_a_flood(hub: tuple[SlowHub, Any]) -> None:
    there, make = hub
    identify = make(0.05)
    assert (await identify("alice")).user == "alice"
    there.slow_s = 9.0
    flood = [asyncio.ensure_future(identify(f"unknown-{number}")) for number in range(400)]
    await asyncio.sleep(0.2)  # What was said of alice is kept no longer.
    async with asyncio.timeout(30.0):  # Behind the flood it would take minutes.
        assert (await identify("alice")).user == "alice"
    refused = [task for task in flood if task.done() and isinstance(task.exception(), IdentityUnknown)]
    assert len(refused) > 100, "so many at once are not even asked about"
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
