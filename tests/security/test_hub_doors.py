"""What a Hub's users may not do to its scheduler: listen in, speak for another's host, or rule it."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from replkernel_scheduler.types import UserName
from replkernel_server.errors import ServiceSettingError
from replkernel_server.hub import HubConfigError, setup_replkernel
from replkernel_server.hub_service import read_place
from replkernel_server.scheduling.identity import Identity
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from traitlets.config import Config

from replkernel.leasing import wire
from tests.unit.scheduler.desk import Room

ACCESS, LEASE = "access:services!service=replkernel", "custom:replkernel:lease"
ENVIRONMENT = {
    "JUPYTERHUB_API_TOKEN": "t",
    "JUPYTERHUB_API_URL": "http://127.0.0.1:8081/hub/api",
    "JUPYTERHUB_SERVICE_PREFIX": "/services/replkernel/",
}
BOB = Identity(UserName("bob"))
MALLORY = Identity(UserName("mallory"))


# -- where it listens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["http://0.0.0.0:8797", "http://10.0.0.7:8797", "http://[::]:8797"])
def test_the_service_listens_without_tls_at_loopback_alone(address: str) -> None:
    with pytest.raises(ServiceSettingError, match=r"not a loopback address.*plain_http=True"):
        read_place(ENVIRONMENT | {"JUPYTERHUB_SERVICE_URL": address})
    with pytest.raises(HubConfigError, match=r"not a loopback address.*plain_http=True"):
        setup_replkernel(Config(), address=address)


def test_loopback_and_a_network_that_an_administrator_answers_for_are_taken() -> None:
    assert read_place(ENVIRONMENT | {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:8797"}).port == 8797
    c = Config()
    setup_replkernel(c, address="http://0.0.0.0:8797", plain_http=True)
    environment = ENVIRONMENT | c.JupyterHub.services[0]["environment"]
    assert read_place(environment | {"JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:8797"}).ip == "0.0.0.0"


def test_https_needs_a_certificate() -> None:
    with pytest.raises(ServiceSettingError, match="JUPYTERHUB_SSL_CERTFILE"):
        read_place(ENVIRONMENT | {"JUPYTERHUB_SERVICE_URL": "https://10.0.0.7:8797"})


# -- who speaks for a host ----------------------------------------------------------------------------


def test_an_agent_that_offered_nothing_does_not_take_a_host_down() -> None:
    room = Room()
    real = room.agent("a")
    stranger = room.join("agent", "a", MALLORY)
    room.do(room.desk.handle(_left(real), room.now))  # It reconnects in a moment.
    room.say(stranger, wire.HostLeaves())
    assert room.hosts() == ["a"]


def test_an_agent_that_offered_nothing_neither_keeps_a_host_up_nor_says_how_busy_it_is() -> None:
    room = Room()
    real = room.agent("a")
    uuid = room.desk.hosts.watched[_host("a")].offer.gpus[0].uuid  # type: ignore[union-attr]
    stranger = room.join("agent", "a", MALLORY)
    room.do(room.desk.handle(_left(real), room.now))
    for _ in range(20):
        room.say(stranger, wire.HostBeat((wire.GpuUse(uuid, 99, 1.0),)))
        room.wait(5.0)
    assert room.hosts() == []


def _left(client: int) -> Any:
    from replkernel_server.scheduling.desk_words import Left

    return Left(client)


def _host(name: str) -> Any:
    from replkernel_scheduler.types import HostName

    return HostName(name)


# -- who is an administrator --------------------------------------------------------------------------


@pytest.fixture
async def ask() -> AsyncIterator[Any]:
    """Return what asks a stand-in Hub for the identity of one user's token, by the scopes of that token."""
    auth = pytest.importorskip("jupyterhub.services.auth", reason="JupyterHub is not installed")
    from replkernel_server.scheduling.hub_identity import HubIdentify

    models: dict[str, dict[str, Any]] = {}

    class Handler(RequestHandler):
        def get(self) -> None:
            found = models.get(self.request.headers["Authorization"].removeprefix("token "))
            self.set_status(200 if found else 403)
            self.finish(json.dumps(found or {"status": 403, "message": "Forbidden"}))

    server = HTTPServer(Application([(r"/hub/api/user", Handler)]))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    identify = HubIdentify(
        auth.HubAuth(api_url=f"http://127.0.0.1:{port}/hub/api", api_token="service", access_scopes={ACCESS}),
        60.0,
    )

    async def asked(*scopes: str, admin: bool = True) -> Identity | None:
        model = {"name": "root", "kind": "user", "admin": admin, "groups": []}
        models[token := f"token-{len(models)}"] = model | {"scopes": [ACCESS, *scopes]}
        return await identify(token)

    yield asked
    with contextlib.suppress(ImportError):  # Before 6.0 JupyterHub keeps no connections.
        client = importlib.import_module("jupyterhub.httpclient").JupyterHubHTTPClient
        await client.loop_instance().close()
    server.stop()
    await server.close_all_connections()


async def test_an_administrators_narrow_token_administers_nothing(ask: Any) -> None:
    narrow = await ask(LEASE)
    assert (narrow.admin, narrow.may_lease, narrow.may_host) == (False, True, False)
    filtered = await ask(LEASE, "admin:servers!user=root", "custom:replkernel:admin!user=root")
    assert not filtered.admin


async def test_a_token_is_an_administrators_by_its_scopes(ask: Any) -> None:
    assert (await ask("admin:servers")).admin
    assert (await ask("custom:replkernel:admin", admin=False)).admin
    assert not (await ask("admin:servers", admin=False)).admin
