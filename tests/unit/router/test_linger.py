"""How long GPUs linger that nobody wants: for a time, with so much on them, else until somebody does."""

from __future__ import annotations

import math
from typing import Any

from replkernel.leasing.wire import LeaseBack, LeaseLingers, LeaseOver, LeaseWanted
from replkernel.protocol.agent_to_router import LeaseFreed
from replkernel.protocol.router_to_agent import FreeLease
from replkernel.records import KernelId, ReplicaId
from replkernel.router.core import events
from replkernel.router.core.leases import Linger
from tests.support.router_world import World
from tests.unit.router.test_leased_cells import compute, governed

FREE = FreeLease(KernelId("k"), ReplicaId("r1"), "lease-1")


def lingering(linger: Linger, gpu_bytes: int = 0) -> World:
    """Return a world in which a cell with a lease has ended, with so much on its GPU."""
    world = governed()
    world.leases._linger = linger
    cell = compute(world)
    said = {"replkernel": {"replica": "r1", "ran": True, "gpu_bytes": gpu_bytes}}
    content: dict[str, Any] = {"status": "ok", "execution_count": 1}
    world.output("r1", "execute_reply", cell, content, "shell", said)
    return world


def asked_of_agents(world: World) -> list[Any]:
    return [each.message for each in world.of(events.ToAgent, world.all) if each.message == FREE]


def freed(world: World, why: str = "") -> None:
    world.say(LeaseFreed(ReplicaId("r1"), "lease-1", 0, why))


def test_state_leaves_gpus_after_its_time_and_only_then_does_the_lease_go_back() -> None:
    world = lingering(Linger(seconds=100.0))
    world.wait(99.0)
    assert asked_of_agents(world) == []
    world.wait(2.0)
    assert asked_of_agents(world) == [FREE]
    assert LeaseBack("lease-1", 1) not in world.told(world.all)
    freed(world)
    assert LeaseBack("lease-1", 1) in world.told(world.all)


def test_a_cell_in_between_has_the_time_begin_anew() -> None:
    world = lingering(Linger(seconds=100.0))
    world.wait(90.0)
    cell = world.needs(1)
    world.grant(f"k:{cell}", ("g0",), lease="lease-2")
    world.begin("r1", cell)
    world.wait(50.0)
    assert not any(message.lease == "lease-2" for message in asked_of_agents(world))


def test_without_a_limit_it_lingers_until_somebody_wants_it() -> None:
    world = lingering(Linger())
    world.wait(100_000.0)
    assert asked_of_agents(world) == []
    assert world.router.deadline() != math.inf


def test_state_larger_than_the_limit_leaves_at_the_cells_end() -> None:
    assert asked_of_agents(lingering(Linger(bytes_max=1e9), 10**9)) == []
    world = lingering(Linger(bytes_max=1e9), 10**9 + 1)
    assert LeaseLingers("lease-1", 1, 0.0, 0.931) in world.told(world.all)
    assert asked_of_agents(world) == [FREE]


def test_state_that_cannot_leave_is_told_once_and_not_as_if_somebody_waited() -> None:
    world = lingering(Linger(seconds=10.0))
    world.wait(11.0)
    freed(world, "thread mine runs")
    world.wait(100.0)
    assert set(asked_of_agents(world)) == {FREE}, "it is tried again with each renewal"
    cell = world.execute()
    world.begin("r1", cell)
    said = [
        each.content.decode() for each in world.of(events.Publish, world.all) if each.msg_type == "stream"
    ]
    assert len(said) == 1
    assert "were to be left" in said[0]
    assert "thread mine runs" in said[0]
    assert not any(isinstance(effect, events.SignalProcess) for effect in world.all)


def test_every_process_with_state_on_the_gpus_leaves_them_before_they_go_back() -> None:
    """Cells ran in turn on replicas of one host, each of which keeps its own copy there."""
    world = World(policy="rotate").up()
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    ran = []
    for number in range(2):
        cell = world.needs(1)
        world.grant(f"k:{cell}", ("g0",), lease=f"l{number}")
        if number:
            world.scheduler(LeaseOver("l0", "reused"))
        ran += world.sent_to(cell)
        world.begin(ran[-1], cell)
        world.finish(ran[-1], cell)
        world.commit(ran[-1], number + 1)
    assert len(set(ran)) == 2
    world.scheduler(LeaseWanted("l1", 2, 30.0))
    asked = [each.message for each in world.of(events.ToAgent) if isinstance(each.message, FreeLease)]
    assert {each.replica for each in asked} == set(ran)
    world.say(LeaseFreed(ReplicaId(ran[1]), "l1", 0, ""))
    assert not [each for each in world.told() if isinstance(each, LeaseBack)], "the other still has its copy"
    world.say(LeaseFreed(ReplicaId(ran[0]), "l1", 0, ""))
    assert [each.lease for each in world.told() if isinstance(each, LeaseBack)] == ["l1"]


def test_a_process_that_dies_while_it_leaves_keeps_nobody_waiting() -> None:
    world = lingering(Linger())
    world.scheduler(LeaseWanted("lease-1", 1, 30.0))
    assert asked_of_agents(world) == [FREE]
    world.lose("r1")
    assert LeaseBack("lease-1", 1) in world.told(world.all)
