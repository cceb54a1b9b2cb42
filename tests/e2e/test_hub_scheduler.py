"""The scheduler as a service of a real JupyterHub: who may come, what he sees, what his group gives him."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator

import pytest

from replkernel.leasing.wire import Denied, Granted, LeaseKept
from tests.support import hub as running
from tests.support.lease_clients import Agent, Router, opened
from tests.support.shared_hub import ADMIN, AGENTS_TOKEN, USING, SharedHub, shared_hub

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedHub]:
    """Return a running hub with the scheduler; the tests use other users, hosts and kernels."""
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with shared_hub(tmp_path_factory.mktemp("hub")) as found:
        yield found


async def test_another_users_lease_can_be_neither_seen_nor_touched_and_an_admin_can(hub: SharedHub) -> None:
    alice, bob = hub.token("alice"), hub.token("bob")
    agent, router = Agent(hub.url, AGENTS_TOKEN, "a", 2), Router(hub.url, alice, "kernel-a", ("a",))
    async with opened(agent, router):
        answer = await router.ask(1)
        assert isinstance(answer, Granted)
        lease = answer.lease
        address = f"leases/{lease.lease}"
        fence = {"fence": lease.fence}
        for method, path, body in (
            ("DELETE", f"{address}?fence={lease.fence}", None),
            ("POST", f"{address}/renewal", fence),
            ("POST", f"{address}/lingering", fence),
        ):
            status, said = hub.ask(bob, method, path, body)
            assert status == 403 and "another user's" in said["why"], (method, path, said)
        _, seen = hub.ask(bob, "GET", "status")
        assert lease.lease not in str(seen["leases"]) and "kernel-a" not in str(seen)
        _, own = hub.ask(alice, "GET", "status")
        assert [(one["lease"], one["yours"]) for one in own["leases"]] == [(lease.lease, True)]
        _, all_of_it = hub.ask(hub.token(ADMIN), "GET", "status")
        named = [(one["lease"], one["user"], one["yours"]) for one in all_of_it["leases"]]
        assert (lease.lease, "alice", False) in named
        assert hub.ask(alice, "POST", f"{address}/renewal", fence)[0] == 201


async def test_a_kernel_of_another_user_is_no_routers_to_speak_for(hub: SharedHub) -> None:
    agent, router = (
        Agent(hub.url, AGENTS_TOKEN, "b", 1),
        Router(hub.url, hub.token("alice"), "kernel-b", ("b",)),
    )
    async with opened(agent, router):
        assert router.channel.user == "alice"
        assert isinstance(await router.ask(1), Granted)
        thief = Router(hub.url, hub.token("bob"), "kernel-b", ("b",))
        assert "another user's" in await thief.refused()
        await thief.close()
        body = {"request": "kernel-b-1", "kernel_id": "kernel-b", "gpus": 1, "ttl_s": 60}
        assert hub.ask(hub.token("bob"), "POST", "leases", body)[0] == 403


async def test_a_cell_over_quota_is_refused_with_the_quota_named(hub: SharedHub) -> None:
    agent, router = (
        Agent(hub.url, AGENTS_TOKEN, "c", 8),
        Router(hub.url, hub.token("carol"), "kernel-c", ("c",)),
    )
    async with opened(agent, router):
        held = await router.ask(3)
        assert isinstance(held, Granted)
        refused = await router.ask(2)
        assert isinstance(refused, Denied)
        assert "gpu_quota of carol is 4 GPUs at once; 3 are in use" in refused.why
        router.give_back(held.lease)
        assert isinstance(await router.ask(4), Granted)


async def test_a_user_of_no_group_may_not_lease(hub: SharedHub) -> None:
    token, _ = hub.running.make_token("dave")
    router = Router(hub.url, token, "kernel-d", ())
    assert "refuses" in await router.refused()
    await router.close()
    assert hub.ask(token, "GET", "status")[0] == 403


async def test_an_agent_without_the_hosts_scope_offers_nothing(hub: SharedHub) -> None:
    false = Agent(hub.url, hub.token("bob"), "e", 4)
    await false.refused()
    await false.close()
    _, seen = hub.ask(hub.token(ADMIN), "GET", "status")
    assert "e" not in [host["name"] for host in seen["hosts"]]
    assert hub.ask(hub.token("bob"), "POST", "hosts", {"name": "e", "gpus": ["x"]})[0] == 403


def test_a_token_that_nobody_has(hub: SharedHub) -> None:
    assert hub.ask("f" * 32, "GET", "status")[0] == 401


@pytest.mark.slow
def test_a_revoked_token_is_refused_within_the_time_that_answers_are_kept(hub: SharedHub) -> None:
    """In `test_hub_identity` the time that answers are kept is short."""
    token, number = hub.running.make_token("alice", *USING)
    assert hub.ask(token, "GET", "status")[0] == 200
    assert hub.running.call("DELETE", f"hub/api/users/alice/tokens/{number}")[0] == 204
    deadline = time.monotonic() + 60.0
    while hub.ask(token, "GET", "status")[0] == 200:
        assert time.monotonic() < deadline, "the token is still taken"
        time.sleep(0.5)
    assert hub.ask(token, "GET", "status")[0] == 401


def told(scene: str, began: float) -> None:
    print(f"{scene}: waited {time.monotonic() - began:.2f} s")


async def queued(router: Router) -> None:
    """Wait until a router has heard its place."""
    while not router.positions:  # noqa: ASYNC110 - the router hears of it in a task of its own
        await asyncio.sleep(0.05)


async def test_of_two_cells_that_wait_the_one_of_the_higher_priority_runs_first(hub: SharedHub) -> None:
    agent = Agent(hub.url, AGENTS_TOKEN, "p", 1)
    holder, plain, urgent = (
        Router(hub.url, hub.token(user), f"kernel-p-{user}", ("p",)) for user in ("alice", "bob", "carol")
    )
    async with opened(agent, holder, plain, urgent):
        held = await holder.ask(1)
        assert isinstance(held, Granted)
        waits = asyncio.create_task(plain.ask(1, within_s=60.0))
        await queued(plain)
        goes = asyncio.create_task(urgent.ask(1, within_s=60.0))
        await queued(urgent)
        assert set(urgent.positions) == {1}, "it is told its place anew when more is known of its wait"
        began = time.monotonic()
        holder.give_back(held.lease)
        first = await goes
        told("the higher priority, once the GPU is given back", began)
        assert isinstance(first, Granted) and not waits.done()
        began = time.monotonic()
        urgent.give_back(first.lease)
        assert isinstance(await waits, Granted)
        told("the lower priority, behind it", began)


async def test_a_drained_host_ends_no_cell_and_others_run_elsewhere(hub: SharedHub) -> None:
    agents = [Agent(hub.url, AGENTS_TOKEN, host, 1) for host in ("d1", "d2")]
    holder = Router(hub.url, hub.token("alice"), "kernel-d-1", ("d1",))
    other = Router(hub.url, hub.token("bob"), "kernel-d-2", ("d1", "d2"))
    async with opened(*agents, holder, other):
        held = await holder.ask(1)
        assert isinstance(held, Granted)
        drained = await asyncio.to_thread(hub.ask, hub.token(ADMIN), "POST", "hosts/d1/draining")
        assert drained[0] == 200, drained
        began = time.monotonic()
        elsewhere = await other.ask(1)
        told("a cell beside a host that is drained", began)
        assert isinstance(elsewhere, Granted) and elsewhere.lease.host == "d2"
        holder.channel.send(LeaseKept(held.lease.lease, held.lease.fence))
        renewed = await asyncio.wait_for(holder.messages.get(), 30.0)
        assert isinstance(renewed, Granted) and renewed.lease.lease == held.lease.lease
        waits = asyncio.create_task(holder.ask(1, within_s=60.0))
        await queued(holder)
        holder.give_back(held.lease)
        began = time.monotonic()
        assert (await asyncio.to_thread(hub.ask, hub.token(ADMIN), "DELETE", "hosts/d1/draining"))[0] == 200
        assert isinstance(await waits, Granted)
        told("a cell that waits for a host that was drained, once it is used again", began)


@pytest.mark.slow
async def test_a_killed_scheduler_is_started_by_the_hub_and_no_lease_is_lost(hub: SharedHub) -> None:
    agent = Agent(hub.url, AGENTS_TOKEN, "g", 1)
    holder, other = (
        Router(hub.url, hub.token(user), f"kernel-g-{user}", ("g",)) for user in ("alice", "bob")
    )
    async with opened(agent, holder, other):
        held = await holder.ask(1)
        assert isinstance(held, Granted)
        waiting = asyncio.create_task(other.ask(1, within_s=120.0))
        await queued(other)
        hub.kill_scheduler()
        await asyncio.wait_for(holder.lost.wait(), 30.0)
        await asyncio.wait_for(asyncio.gather(holder.up.wait(), other.up.wait()), 90.0)
        assert not waiting.done()
        status, said = await asyncio.to_thread(hub.ask, hub.token("alice"), "GET", "status")
        assert status == 200 and [one["lease"] for one in said["leases"]] == [held.lease.lease]
        began = time.monotonic()
        holder.give_back(held.lease)
        granted = await waiting
        told("the scheduler was killed with a waiting cell, which waits for the holder", began)
        assert isinstance(granted, Granted)
        assert granted.lease.gpus == held.lease.gpus and granted.lease.fence > held.lease.fence
