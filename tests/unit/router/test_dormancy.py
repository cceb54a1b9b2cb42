"""Standbys of a notebook that nobody uses go without processes, and are back with the next cell."""

from __future__ import annotations

from replkernel.leasing.wire import LeaseWish
from replkernel.protocol.agent_to_router import (
    AgentWelcome,
    CheckpointWritten,
    KernelHibernated,
    ReplicaPrepared,
    ReplicaUnfaithful,
)
from replkernel.protocol.router_to_agent import DismissReplica
from replkernel.records import HostName, KernelId, Pin, ReplicaId, Seq
from replkernel.router.core import events
from tests.support.router_world import World

IDLE_S = 600.0


def _world(**options: object) -> World:
    """Return a kernel of three replicas that has run one cell, which is durable."""
    world = World(standby_idle_s=IDLE_S, **options)  # type: ignore[arg-type]
    _founded(world)
    world.run("r1")
    world.commit("r1", 1)
    return world


def _founded(world: World) -> None:
    """Have all replicas up, and their group started."""
    world.up()
    for name in world.fleet.replicas:
        world.say(ReplicaPrepared(name, f"{name}:1"))


def _asked(world: World) -> list[tuple[str, bool]]:
    """Return which replicas were dismissed or recalled (True), in order."""
    said = [effect.message for effect in world.of(events.ToAgent, world.all)]
    return [(str(one.replica), one.recalled) for one in said if isinstance(one, DismissReplica)]


def _dormant() -> World:
    world = _world()
    world.wait(IDLE_S)
    world.dismissed("r2")
    world.dismissed("r3")
    world.all.clear()
    return world


def test_the_standbys_of_an_unused_notebook_are_dismissed_and_its_executor_stays() -> None:
    world = _world()
    world.wait(IDLE_S - 1)
    assert _asked(world) == []
    world.wait(1)
    assert _asked(world) == [("r2", False), ("r3", False)]
    assert world.fleet.ready() == [ReplicaId("r1")]


def test_a_cell_runs_at_once_and_brings_the_standbys_back() -> None:
    world = _dormant()
    cell = world.execute()
    assert world.sent_to(cell) == ["r1"]
    assert _asked(world) == [], "the cell has the processor for itself at first"
    for _ in range(3):
        world.wait(1)
        world.feed(events.Tick())
        assert _asked(world) == [("r2", True)]
    world.ready("r2", 1)
    world.wait(1)
    assert _asked(world) == [("r2", True), ("r3", True)]
    world.ready("r3", 1)
    assert world.fleet.ready() == [ReplicaId("r1"), ReplicaId("r2"), ReplicaId("r3")]


def test_a_pages_own_requests_leave_the_standbys_dormant() -> None:
    world = _dormant()
    world.request("replkernel_progress_request", {"since": 0}, channel="control")
    world.request("kernel_info_request")
    world.request("comm_info_request")
    world.wait(IDLE_S)
    assert _asked(world) == []


def test_a_lost_executor_brings_the_standbys_back_and_the_first_one_runs_the_next_cell() -> None:
    world = _dormant()
    world.lose("r1")
    assert _asked(world) == [], "its own next process is awaited first"
    cell = world.execute()
    assert _asked(world) == [("r2", True), ("r3", True)]
    world.ready("r2", 1)
    world.wait(5)
    assert world.sent_to(cell) == ["r2"]


def test_an_executor_that_does_not_return_is_replaced_though_nobody_waits() -> None:
    world = _dormant()
    world.lose("r1")
    world.wait(6)
    assert _asked(world) == [("r2", True), ("r3", True)]


def test_the_time_counts_from_the_end_of_a_long_cell() -> None:
    world = _world()
    cell = world.execute()
    world.begin("r1", cell, 2)
    world.wait(5 * IDLE_S)
    world.finish("r1", cell)
    world.commit("r1", 2)
    world.wait(IDLE_S - 1)
    assert _asked(world) == []
    world.wait(1)
    assert _asked(world) == [("r2", False), ("r3", False)]


def test_standbys_stay_while_they_could_not_rebuild_what_the_executor_has() -> None:
    world = _world()
    pin = Pin("x", "Drops", ReplicaId("r1"), Seq(1), "x", "it differs")
    world.say(ReplicaUnfaithful(ReplicaId("r2"), (pin,)))
    world.wait(3 * IDLE_S)
    assert _asked(world) == []


def test_standbys_stay_while_their_agent_is_away() -> None:
    world = _world(hosts=[HostName("a"), HostName("b"), HostName("c")])
    world.feed(events.AgentGone(HostName("b")))
    world.wait(2 * IDLE_S)
    assert _asked(world) == []


def test_a_notebook_that_hibernates_leaves_them_dormant() -> None:
    world = _dormant()
    world.request("replkernel_hibernate_request", channel="control")
    world.say(CheckpointWritten(KernelId("k"), "checkpoint-1"))
    world.say(KernelHibernated(KernelId("k")))
    assert world.fleet.asleep
    assert _asked(world) == []


def test_a_cell_waits_for_the_standby_on_the_host_of_its_gpus() -> None:
    world = World(standby_idle_s=IDLE_S, hosts=[HostName("a"), HostName("b"), HostName("c")])
    _founded(world)
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    world.run("r1")
    world.commit("r1", 1)
    world.wait(IDLE_S)
    world.dismissed("r2")
    world.dismissed("r3")
    cell = world.needs(1)
    assert ("r2", True) in _asked(world), "what waits for GPUs may have to go there"
    (wish,) = [one for one in world.told() if isinstance(one, LeaseWish)]
    world.grant(wish.request, host=HostName("b"))
    world.wait(30)
    assert world.sent_to(cell) == []
    world.ready("r2", 1)
    assert world.sent_to(cell) == ["r2"]


def test_standbys_stay_while_a_cell_runs() -> None:
    world = _world()
    world.begin("r1", world.execute(), 2)
    world.wait(3 * IDLE_S)
    assert _asked(world) == []


def test_standbys_stay_until_what_ran_is_durable() -> None:
    world = _world()
    world.run("r1")
    world.wait(2 * IDLE_S)
    assert _asked(world) == []
    world.commit("r1", 2)
    world.wait(IDLE_S)
    assert _asked(world) == [("r2", False), ("r3", False)]


def test_standbys_stay_while_one_of_them_holds_what_cannot_travel() -> None:
    world = World(standby_idle_s=IDLE_S)
    _founded(world)
    world.run("r1")
    world.commit("r1", 1, (Pin("held", "lock", ReplicaId("r2"), Seq(1)),))
    world.wait(2 * IDLE_S)
    assert _asked(world) == []


def test_standbys_stay_where_cells_move_between_replicas() -> None:
    world = _world(policy="rotate")
    world.wait(2 * IDLE_S)
    assert _asked(world) == []


def test_standbys_stay_where_an_agent_is_of_an_older_release() -> None:
    world = World(standby_idle_s=IDLE_S)
    world.feed(events.AgentFound(HostName("here"), "token"))
    world.say(AgentWelcome(host=HostName("here"), agent_pid=2))
    for name in ("r1", "r2", "r3"):
        world.ready(name)
        world.say(ReplicaPrepared(ReplicaId(name), f"{name}:1"))
    world.run("r1")
    world.commit("r1", 1)
    world.wait(2 * IDLE_S)
    assert _asked(world) == []


def test_standbys_stay_by_setting() -> None:
    world = World(standby_idle_s=0.0)
    _founded(world)
    world.run("r1")
    world.commit("r1", 1)
    assert world.router.deadline() is None
    world.wait(10 * IDLE_S)
    assert _asked(world) == []


def test_a_next_router_hears_which_standbys_are_dormant_and_recalls_them() -> None:
    world = World(standby_idle_s=IDLE_S, resuming=True)
    world.feed(events.AgentFound(HostName("here"), "token"))
    members = {ReplicaId(name): HostName("here") for name in ("r1", "r2", "r3")}
    welcome = AgentWelcome(
        HostName("here"), 2, "one", None, tuple(members), Seq(1), members=members, dismisses=True
    )
    world.say(welcome)
    world.ready("r1", 1)
    world.dismissed("r2")
    world.dismissed("r3")
    world.wait(1)
    assert _asked(world) == [("r2", True)]


def test_a_dormant_notebook_costs_its_router_no_timer() -> None:
    assert _dormant().router.deadline() is None
