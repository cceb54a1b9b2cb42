"""What each of several users sees and may do over REST: kernels, quotas, draining, accounts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from replkernel_scheduler.types import UserName, UserQuota
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.settings import ServiceSettings
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from replkernel.leasing import wire
from tests.support.scheduler_client import Client, close_all, offer

USERS = {
    "a": Identity(UserName("alice")),
    "b": Identity(UserName("bob"), quota=UserQuota(priority=1)),
    "r": Identity(UserName("root"), admin=True),
}


async def identify(token: str) -> Identity | None:
    return USERS.get(token)


class World:
    """A hosted scheduler."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def call(self, token: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the document of a request."""
        data = None if body is None else json.dumps(body).encode()
        answer = await AsyncHTTPClient().fetch(
            f"{self.url}{path if path.startswith('/') else '/api/v1/' + path}",
            method=method,
            headers={"Authorization": f"token {token}"},
            body=data,
            raise_error=False,
            allow_nonstandard_methods=True,
        )
        try:
            return answer.code, json.loads(answer.body)
        except ValueError:
            return answer.code, answer.body.decode()

    async def kernel(self, token: str, name: str) -> tuple[Client, wire.GrantedLease]:
        """Start a kernel's router and give it a lease."""
        router = await Client.hello(self.url, token, "router", name)
        router.say(wire.KernelHere(("a",), 1), wire.LeaseWish(f"cell-{name}", 1))  # type: ignore[arg-type]
        return router, (await router.hear(wire.Granted)).lease


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    hosted = await Hosted.open(ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}"), identify)
    server = HTTPServer(Application(hosted.routes()))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    there = World(f"http://127.0.0.1:{port}")
    agent = await Client.hello(there.url, "r", "agent", "a")
    agent.say(offer("a", 3), wire.HostBeat((wire.GpuUse("GPU-a-0", 0.25, 7.5),)))
    yield there
    await close_all()
    server.stop()
    await hosted.close()
    await server.close_all_connections()


async def test_everybody_sees_the_gpus_and_only_his_own_leases_requests_and_kernels(world: World) -> None:
    _, alices = await world.kernel("a", "ka")
    await world.kernel("b", "kb")
    wishes = {"gpus": 3, "ttl_s": 60, "hosts": ["a"]}
    assert (await world.call("b", "POST", "leases", {"request": "w", "kernel_id": "kw", **wishes}))[0] == 202
    status = (await world.call("a", "GET", "status"))[1]
    assert [lease["lease"] for lease in status["leases"]] == [alices.lease] and status["queue"] == []
    gpus = status["hosts"][0]["gpus"]
    assert [(gpu["lease"], gpu["state"]) for gpu in gpus] == [
        (alices.lease, "active"),
        (None, "active"),
        (None, "idle"),
    ]
    assert gpus[0] == gpus[0] | {"model": "H100", "memory_gb": 80, "utilisation": 0.25, "memory_used_gb": 7.5}
    assert gpus[1]["utilisation"] is None
    everything = (await world.call("r", "GET", "status"))[1]
    assert (len(everything["leases"]), len(everything["queue"])) == (2, 1)
    kernels = (await world.call("a", "GET", "kernels"))[1]["kernels"]
    assert kernels == [
        {
            "kernel_id": "ka",
            "user": "alice",
            "hosts": ["a"],
            "gpus": 1,
            "connected": True,
            "leases": [alices.lease],
            "requests": [],
            "moving_to": "",
            "not_moved": "",
        }
    ]
    assert len((await world.call("r", "GET", "kernels"))[1]["kernels"]) == 2


async def test_a_kernel_is_emptied_by_its_user_or_an_admin_and_may_ask_again(world: World) -> None:
    router, lease = await world.kernel("a", "ka")
    code, said = await world.call("b", "DELETE", "kernels/ka")
    assert code == 403 and "another user's" in said["why"]
    assert (await world.call("a", "DELETE", "kernels/ka"))[0] == 200
    assert await router.hear(wire.LeaseOver) == wire.LeaseOver(lease.lease, "kernel ended")
    router.say(wire.LeaseWish("again", 1))
    assert (await router.hear(wire.Granted)).lease.request == "again"
    assert (await world.call("r", "DELETE", "kernels/ka"))[0] == 200
    assert (await world.call("r", "GET", "status"))[1]["leases"] == []


async def test_a_kernels_replica_is_moved_by_its_user_to_a_host_that_is_up(world: World) -> None:
    router = await Client.hello(world.url, "a", "router", "ka")
    router.say(wire.KernelHere(("a",), moves=True))  # type: ignore[arg-type]
    second = await Client.hello(world.url, "r", "agent", "d")
    second.say(wire.HostOffer(()))
    where, wish = "kernels/ka/migration", {"host": "d"}
    while (await world.call("r", "GET", "status"))[1]["hosts"][-1]["name"] != "d":  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    while not (await world.call("a", "GET", "kernels"))[1]["kernels"]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    code, said = await world.call("b", "POST", where, wish)
    assert code == 403 and "another user's" in said["why"]
    code, said = await world.call("a", "POST", where, {"host": "nowhere"})
    assert code == 409 and said["why"] == "No replica moves: no host nowhere is up."
    assert (await world.call("a", "POST", where, {}))[0] == 400
    code, said = await world.call("a", "POST", where, wish)
    assert (code, said["source"], said["host"]) == (202, "a", "d")
    order = await router.hear(wire.MoveReplica)
    (kernel,) = (await world.call("a", "GET", "kernels"))[1]["kernels"]
    assert kernel["moving_to"] == "d"
    assert (await world.call("a", "POST", where, wish))[0] == 409, "one at a time"
    router.say(wire.MoveFailed(order.order, "no room"))
    await router.hear(wire.MoveOver)
    (kernel,) = (await world.call("a", "GET", "kernels"))[1]["kernels"]
    assert (kernel["moving_to"], kernel["not_moved"]) == ("", "Kernel ka was not moved: no room.")
    assert (await world.call("a", "POST", where, wish))[0] == 202
    order = await router.hear(wire.MoveReplica)
    router.say(wire.ReplicaMoved(order.order))
    await router.hear(wire.MoveOver)
    (kernel,) = (await world.call("a", "GET", "kernels"))[1]["kernels"]
    assert (kernel["hosts"], kernel["moving_to"], kernel["not_moved"]) == (["d"], "", "")
    text = (await world.call("r", "GET", "/metrics"))[1]
    steps = {'begun"} 2.0', 'done"} 1.0', 'given up"} 1.0'}
    assert all(f'replkernel_scheduler_migrations_total{{step="{step}' in text for step in steps)
    assert "replkernel_scheduler_migrations_running 0.0" in text


async def test_an_admin_sets_quotas_and_everybody_reads_his_own(world: World) -> None:
    assert (await world.call("a", "PUT", "quotas/alice", {"gpu_quota": 9}))[0] == 403
    assert (await world.call("r", "PUT", "quotas/alice", {"gpu_quota": -1}))[0] == 400
    body = {"gpu_quota": 1, "gpu_hours_month": 2.5}
    assert (await world.call("r", "PUT", "quotas/alice", body))[0] == 200
    router, _ = await world.kernel("a", "ka")
    router.say(wire.LeaseWish("more", 1))
    assert "gpu_quota of alice is 1 GPUs" in (await router.hear(wire.Denied)).why
    own = (await world.call("a", "GET", "quotas"))[1]["quotas"]
    assert [quota.pop("gpu_hours_used") >= 0 for quota in own] == [True]
    assert own == [{"user": "alice", **body, "priority": 0, "held": 1, "waiting": 0}]
    await world.call("b", "GET", "status")
    everybody = (await world.call("r", "GET", "quotas"))[1]["quotas"]
    assert {quota["user"]: quota["priority"] for quota in everybody} == {"alice": 0, "bob": 1}


async def test_a_host_is_drained_by_an_admin_and_takes_nothing_new(world: World) -> None:
    router, lease = await world.kernel("a", "ka")
    assert (await world.call("a", "POST", "hosts/a/draining", {}))[0] == 403
    assert (await world.call("r", "POST", "hosts/nowhere/draining", {}))[0] == 409
    assert (await world.call("r", "POST", "hosts/a/draining", {}))[0] == 200
    assert (await world.call("r", "GET", "status"))[1]["hosts"][0]["state"] == "draining"
    router.say(wire.LeaseKept(lease.lease, lease.fence))
    assert (await router.hear(wire.Granted)).lease.lease == lease.lease, "what runs goes on"
    router.say(wire.LeaseWish("more", 1))
    assert (await router.hear(wire.Waiting)).request == "more"


async def test_accounts_are_ones_own(world: World) -> None:
    for token, name in (("a", "ka"), ("b", "kb")):
        router, lease = await world.kernel(token, name)
        router.say(wire.LeaseBack(lease.lease, lease.fence))
        await router.hear(wire.LeaseOver)
    cells = (await world.call("a", "GET", "accounting"))[1]["cells"]
    assert [row["user"] for row in cells] == ["alice"]
    for by in ("kernel", "user"):
        sums = (await world.call("b", "GET", f"accounting?by={by}"))[1]["sums"]
        assert [row["user"] for row in sums] == ["bob"]
    assert len((await world.call("r", "GET", "accounting"))[1]["cells"]) == 2
    assert "bob" not in (await world.call("a", "GET", "accounting?format=csv"))[1]


async def test_figures_tell_how_busy_gpus_are_and_who_is_connected(world: World) -> None:
    await world.kernel("a", "ka")
    figures = (await world.call("a", "GET", "/metrics"))[1]
    assert 'replkernel_scheduler_gpu_utilisation{gpu="GPU-a-0",host="a"} 0.25' in figures
    assert 'replkernel_scheduler_gpu_memory_used_gb{gpu="GPU-a-0",host="a"} 7.5' in figures
    assert 'replkernel_scheduler_clients{role="router"} 1.0' in figures
    assert 'replkernel_scheduler_clients{role="agent"} 1.0' in figures
