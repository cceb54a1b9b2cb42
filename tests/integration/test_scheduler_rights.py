"""What each of several users sees and may do over REST: kernels, quotas, draining, accounts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from replkernel_scheduler import viewing
from replkernel_scheduler.types import UserName, UserQuota
from replkernel_server.handlers import scheduler_base, scheduler_reports
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
    "o": Identity(UserName("olga"), sees_all=True),
}


async def identify(token: str) -> Identity | None:
    return USERS.get(token)


class World:
    """A hosted scheduler."""

    def __init__(self, url: str, hosted: Hosted) -> None:
        self.url, self.hosted = url, hosted

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
    there = World(f"http://127.0.0.1:{port}", hosted)
    agent = await Client.hello(there.url, "r", "agent", "a")
    agent.say(offer("a", 3), wire.HostBeat((wire.GpuUse("GPU-a-0", 0.25, 7.5),)))
    yield there
    await close_all()
    server.stop()
    await hosted.close()
    await server.close_all_connections()


def is_left_of(whole_s: float, began: float, told_s: float) -> bool:
    """Say whether so much may be left of a time that runs since `began` or a little later."""
    passed_s = time.monotonic() - began
    return whole_s - passed_s - 1.0 < told_s <= whole_s


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
            "notebook": "",
        }
    ]
    assert len((await world.call("r", "GET", "kernels"))[1]["kernels"]) == 2


async def test_a_jobs_own_names_are_refused_to_users(world: World) -> None:
    wish = {"gpus": 1, "ttl_s": 60, "hosts": ["a"]}
    for token in "br":
        for named in (
            {"request": "job.train.1", "kernel_id": "k"},
            {"request": "r", "kernel_id": "job.train.1"},
        ):
            status, said = await world.call(token, "POST", "leases", wish | named)
            assert (status, "are jobs'" in said["why"]) == (400, True)
        for method, path, body in (
            ("POST", "kernels/job.train.1/placement", {"gpus": 1}),
            ("GET", "kernels/job.train.1/placement", None),
            ("POST", "kernels/job.train.1/migration", {"host": "a"}),
            ("DELETE", "kernels/job.train.1", None),
        ):
            status, said = await world.call(token, method, path, body)
            assert (status, "are jobs'" in said["why"]) == (403, True)
    assert (await world.call("r", "GET", "status"))[1]["leases"] == []


async def test_a_jobs_lease_is_nobodys_to_give_back_or_to_keep(world: World) -> None:
    line = await Client.hello(world.url, "a", "jobs", "a")
    line.say(wire.JobsHere())
    body = {"job": "train", "command": ["true"], "directory": "/w", "seal": "s", "gpus": [1]}
    assert (await world.call("a", "POST", "jobs", body))[0] == 201
    await line.hear(wire.StartJob)
    (lease,) = (await world.call("r", "GET", "status"))[1]["leases"]
    name, fence = lease["lease"], lease["fence"]
    for token in "abr":
        for method, path, told in (
            ("DELETE", f"leases/{name}?fence={fence}", None),
            ("POST", f"leases/{name}/renewal", {"fence": fence}),
            ("POST", f"leases/{name}/lingering", {"fence": fence}),
        ):
            assert (await world.call(token, method, path, told))[0] == 403
    assert (await world.call("a", "GET", "jobs/train"))[1]["state"] == "starting"


async def test_a_cells_leases_on_several_hosts_are_an_admins_alone_to_end(world: World) -> None:
    agent = await Client.hello(world.url, "r", "agent", "b")
    agent.say(offer("b", 3))
    for host in "ab":
        line = await Client.hello(world.url, "a", "jobs", host)
        line.say(wire.JobsHere(ranks=True))
        await line.hear(wire.JobsAwait)
    cell = await Client.hello(world.url, "a", "gang", "g")
    cell.say(wire.GangWish("k", 1, 2, "/w", "e", "s"))
    has = (await cell.hear(wire.GangHas)).leases
    name, fence = has[0].lease, has[0].fence
    for token in "abro":
        assert (await world.call(token, "POST", f"leases/{name}/renewal", {"fence": fence}))[0] == 403
        assert (await world.call(token, "POST", f"leases/{name}/lingering", {"fence": fence}))[0] == 403
        if token != "r":
            assert (await world.call(token, "DELETE", f"leases/{name}?fence={fence}"))[0] == 403
    assert (await world.call("r", "DELETE", f"leases/{name}?fence={fence}"))[0] == 200
    assert "The lease on host a is over" in (await cell.hear(wire.GangEnded)).why
    assert len((await world.call("r", "GET", "status"))[1]["leases"]) == 1, "its processes on b may live"


async def test_notebook_and_user_of_leases_and_waiting_cells_are_named_to_who_may_see_them(
    world: World,
) -> None:
    for token, path, gpus in (("a", "/home/alice/work/train.ipynb", 2), ("b", "b\x1b[31m.ipynb", 2)):
        router = await Client.hello(world.url, token, "router", f"k{token}")
        router.say(
            wire.KernelHere(("a",), 1, notebook=path),  # type: ignore[arg-type]
            wire.LeaseWish(f"cell-{token}", gpus),
        )
        await router.hear(wire.Granted if token == "a" else wire.Waiting)  # type: ignore[type-var]
    seen = {}
    for token in USERS:
        status = (await world.call(token, "GET", "status"))[1]
        seen[token] = [
            (one["user"], one["notebook"], one["yours"]) for one in (*status["leases"], *status["queue"])
        ]
        assert all(one["held_s"] > 0 for one in status["leases"])
        assert all((one["position"], one["waited_s"] > 0) == (1, True) for one in status["queue"])
        kernels = (await world.call(token, "GET", "kernels"))[1]["kernels"]
        assert [(one["user"], one["notebook"]) for one in kernels] == [one[:2] for one in seen[token]]
    alice, bob = ("alice", "/home/alice/work/train.ipynb"), ("bob", "b\N{REPLACEMENT CHARACTER}[31m.ipynb")
    everything = [(*alice, False), (*bob, False)]
    assert seen == {"a": [(*alice, True)], "b": [(*bob, True)], "r": everything, "o": everything}
    assert (await world.call("o", "DELETE", "kernels/ka"))[0] == 403


async def test_a_kernel_that_nobody_knows_is_not_found(world: World) -> None:
    for method, path, body in (
        ("DELETE", "kernels/kx", None),
        ("POST", "kernels/kx/migration", {"host": "a"}),
    ):
        code, said = await world.call("a", method, path, body)
        assert code == 404 and said["why"] == "No kernel kx is known: GET /api/v1/kernels lists yours."
    wish = {"request": "w", "kernel_id": "kw", "gpus": 3, "ttl_s": 60}
    await world.kernel("b", "kb")
    assert (await world.call("a", "POST", "leases", wish))[0] == 202
    assert (await world.call("a", "DELETE", "kernels/kw"))[0] == 200, "it waits, so it is known"


async def test_a_holder_that_came_over_rest_is_told_that_its_gpus_are_wanted(world: World) -> None:
    wish = {"kernel_id": "kw", "gpus": 3, "ttl_s": 600}
    lease = (await world.call("a", "POST", "leases", {"request": "w", **wish}))[1]["lease"]
    held, fence = f"leases/{lease['lease']}", {"fence": lease["fence"]}
    assert await world.call("a", "POST", f"{held}/lingering", fence) == (200, {"wanted_within_s": None})
    assert (await world.call("a", "POST", f"{held}/renewal", fence))[0] == 201
    began = time.monotonic()
    assert (await world.call("b", "POST", "leases", {"request": "v", **wish, "kernel_id": "kv"}))[0] == 202
    code, said = await world.call("a", "POST", f"{held}/renewal", fence)
    assert code == 409 and is_left_of(30.0, began, said["wanted_within_s"]), said
    assert said["why"] == (
        f"Somebody waits for the GPUs of lease {lease['lease']}: move its state off and give it back."
    )
    assert (await world.call("a", "DELETE", f"{held}?fence={lease['fence']}"))[0] == 200
    assert (await world.call("a", "POST", f"{held}/renewal", fence))[0] == 410
    code, said = await world.call("b", "POST", "leases", {"request": "v", **wish, "kernel_id": "kv"})
    assert code == 201 and said["lease"]["gpus"] == lease["gpus"]


async def test_a_holder_that_lingers_while_others_wait_is_told_at_once(world: World) -> None:
    wish = {"gpus": 3, "ttl_s": 600}
    lease = (await world.call("a", "POST", "leases", {"request": "w", "kernel_id": "kw", **wish}))[1]["lease"]
    began = time.monotonic()
    assert (await world.call("b", "POST", "leases", {"request": "v", "kernel_id": "kv", **wish}))[0] == 202
    code, said = await world.call(
        "a", "POST", f"leases/{lease['lease']}/lingering", {"fence": lease["fence"]}
    )
    assert code == 200 and is_left_of(30.0, began, said["wanted_within_s"])


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
    for _ in range(500):
        known = (await world.call("a", "GET", "kernels"))[1]["kernels"]
        if known and (await world.call("r", "GET", "status"))[1]["hosts"][-1]["name"] == "d":
            break
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
    code, why = await world.call("r", "PUT", "quotas/alice", {"idle_gpus": "below=5"})
    assert code == 400 and "idle_gpus='below=5' lacks below= or minutes=" in str(why)
    body = {"gpu_quota": 1, "gpu_hours_month": 2.5, "idle_gpus": "below=5 minutes=15"}
    assert (await world.call("r", "PUT", "quotas/alice", body))[0] == 200
    router, _ = await world.kernel("a", "ka")
    router.say(wire.LeaseWish("more", 1))
    assert "gpu_quota of alice is 1 GPUs" in (await router.hear(wire.Denied)).why
    own = (await world.call("a", "GET", "quotas"))[1]["quotas"]
    assert [quota.pop("gpu_hours_used") >= 0 for quota in own] == [True]
    money = {"budget_month": None, "spent_month": None, "currency": "", "preemptible": False}
    assert own == [{"user": "alice", **body, "priority": 0, "held": 1, "waiting": 0, **money}]
    assert (await world.call("r", "PUT", "quotas/alice", {"idle_gpus": " "}))[0] == 200
    (own,) = (await world.call("a", "GET", "quotas"))[1]["quotas"]
    assert own["idle_gpus"] is None, "nothing is no rule, and does not lift what holds for all"
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
    assert (await world.call("a", "DELETE", "hosts/a/draining"))[0] == 403
    assert (await world.call("r", "DELETE", "hosts/nowhere/draining"))[0] == 409
    assert (await world.call("r", "DELETE", "hosts/a/draining"))[0] == 200
    assert (await router.hear(wire.Granted)).lease.request == "more", "and it is used again"
    assert (await world.call("r", "GET", "status"))[1]["hosts"][0]["state"] == "up"
    assert (await world.call("r", "DELETE", "hosts/a/draining"))[0] == 200


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


async def test_long_answers_come_in_pieces_and_are_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ka", "kc"):
        router, lease = await world.kernel("a", name)
        router.say(wire.LeaseBack(lease.lease, lease.fence))
        await router.hear(wire.LeaseOver)
    await world.kernel("a", "kd")
    await world.kernel("b", "kb")
    wishes = {"gpus": 3, "ttl_s": 60, "hosts": ["a"]}
    for number in range(5):
        body = {"request": f"w{number}", "kernel_id": "kw", **wishes}
        assert (await world.call("b", "POST", "leases", body))[0] == 202
    for _ in range(400):  # Who waits is looked at a moment later, and told more then.
        queue = (await world.call("r", "GET", "status"))[1]["queue"]
        if len(queue) == 5 and all("compute" in one["why"] for one in queue):
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("nobody is told more of what they wait for")
    paths = ["status", "kernels", "quotas", "/metrics", "accounting", "accounting?format=csv"]
    paths += [f"accounting?by={by}&format={form}" for by in ("kernel", "user") for form in ("json", "csv")]

    async def answers() -> list[Any]:
        return [steady(await world.call(token, "GET", path)) for token in "abr" for path in paths]

    whole = await answers()
    assert {code for code, _ in whole} == {200}
    for module, name in ((scheduler_base, "PIECE"), (viewing, "SLICE"), (scheduler_reports, "PIECE_BYTES")):
        monkeypatch.setattr(module, name, 1 if name != "PIECE_BYTES" else 100)
    assert await answers() == whole


def steady(answer: tuple[int, Any]) -> tuple[int, Any]:
    """Return an answer without what changes with time."""
    code, body = answer
    if isinstance(body, str):
        moving = re.compile(
            r"(replkernel_scheduler_(queue_oldest|decision)\S* |,)\d+\.\d+(e-\d+)?|_created\S* \S+"
        )
        return code, moving.sub("", body)
    return code, json.loads(json.dumps(body), parse_float=lambda _: 0.0)


async def test_others_have_their_turn_while_a_long_answer_is_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        body = {"name": f"h{number}", "gpus": [f"GPU-h{number}"]}
        assert (await world.call("r", "POST", "hosts", body))[0] == 200
    monkeypatch.setattr(scheduler_base, "PIECE", 2)
    monkeypatch.setattr(viewing, "SLICE", 2)

    async def written() -> None:
        async for _ in scheduler_base.paced(range(100)):
            pass

    for work in (world.hosted.driver.view("hosts"), written()):
        turns = 0
        with contextlib.suppress(StopIteration):
            while True:
                work.send(None)
                turns += 1
        assert turns >= 50
