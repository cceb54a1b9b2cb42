"""Replicas that will not return are replaced: which, where, in which order, and when nothing is done."""

from __future__ import annotations

from replkernel.protocol.agent_to_router import (
    AgentWelcome,
    MemberBroken,
    MembersChanged,
    ReplicaPrepared,
    ReplicaReady,
)
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.message import decoder, encode
from replkernel.protocol.router_to_agent import (
    ChangeMembers,
    PrepareReplica,
    RouterToAgent,
    StartReplica,
    StopReplica,
)
from replkernel.records import HostName, KernelId, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.fleet import PEERS_WAIT_S
from replkernel.router.core.replacement import (
    CHANGE_AGAIN_S,
    HOST_LOST_S,
    JOIN_LIMIT_S,
    LOOK_AGAIN_S,
    PREPARE_LIMIT_S,
)
from tests.support.router_world import World

K = KernelId("k")
A, B, C, D = (HostName(name) for name in "abcd")
R1, R2, R3, R4, R5 = (ReplicaId(f"r{number}") for number in range(1, 6))
PLACES = {R1: A, R2: B, R3: C}
PEERS = {R1: "a:1", R3: "c:1", R4: "d:1"}


def told(world: World, effects: list[events.Effect] | None = None) -> list[tuple[str, str, str]]:
    """Return what agents were told of members: host, message, replica."""
    kinds = (PrepareReplica, ChangeMembers, StartReplica, StopReplica)
    return [
        (effect.host, type(effect.message).__name__, effect.message.replica)
        for effect in world.of(events.ToAgent, effects)
        if isinstance(effect.message, kinds)
    ]


def come(world: World, host: HostName, *replicas: ReplicaId, **more: object) -> list[events.Effect]:
    """Have an agent be found; with replicas, it keeps them."""
    world.feed(events.AgentFound(host, "token"))
    kept = {"incarnation": "one", "replicas": replicas} if replicas else {}
    return world.say(AgentWelcome(host, 2, **kept, **more), host)  # type: ignore[arg-type]


def ready(world: World, name: ReplicaId, host: HostName) -> list[events.Effect]:
    """Have a replica become ready and be linked."""
    ends = Endpoints(*(f"ipc://{name}-{kind}" for kind in "scio"))
    world.say(ReplicaReady(name, host, 9, ends, Seq(0), b"{}"), host)
    return world.output(name, "iopub_welcome", "", {}) + world.feed(events.Tick())


def grouped(hosts: tuple[HostName, ...] = (A, B, C, D)) -> World:
    """Return a kernel whose three replicas are on three hosts; the others are spare."""
    world = World(hosts=hosts)
    for host in hosts:
        come(world, host)
    for name, host in PLACES.items():
        world.say(ReplicaPrepared(name, f"{host}:1"), host)
        ready(world, name, host)
    return world


def lose(world: World, host: HostName) -> None:
    world.feed(events.AgentGone(host))
    world.feed(events.AgentMissing(host, "AgentUnavailable", "it is not there"))


def changed(world: World, name: ReplicaId = R4, why: str = "") -> list[events.Effect]:
    return world.say(MembersChanged(K, name, {} if why else PEERS, "theirs", why=why), A)


def test_a_lost_host_is_replaced_by_a_spare_one_step_by_step() -> None:
    world = grouped()
    lose(world, B)
    assert told(world, world.wait(HOST_LOST_S - 1)) == []
    assert told(world, world.wait(2)) == [(D, "PrepareReplica", R4)]
    asked = world.say(ReplicaPrepared(R4, "d:1"), D)
    assert told(world, asked) == [(A, "ChangeMembers", R4), (C, "ChangeMembers", R4)]
    wish = world.of(events.ToAgent, asked)[0].message
    assert wish == ChangeMembers(K, R4, "d:1", R2, "b:1")
    started = changed(world)
    (start,) = [effect.message for effect in world.of(events.ToAgent, started)]
    assert isinstance(start, StartReplica)
    assert (start.replica, start.peers, start.secret, start.joining) == (R4, PEERS, "theirs", True)
    ready(world, R4, D)
    assert list(world.fleet.ready()) == [R1, R3, R4]
    said = [log.text for log in world.of(events.Log, world.all) if log.severity == "warning"]
    assert said[-1] == "Replica r2 was replaced by r4 on host d: its host b has not answered for 30 s."
    assert told(world, world.wait(1000)) == []


def test_one_that_is_lost_before_it_was_started_is_taken_out_by_its_address() -> None:
    """The log does not name it, so the group's leader does not know where it was to be."""
    world = grouped()
    lose(world, B)
    world.wait(HOST_LOST_S + 1)
    world.say(ReplicaPrepared(R4, "d:1"), D)
    changed(world)
    lose(world, D)
    come(world, B)
    assert told(world, world.wait(JOIN_LIMIT_S + HOST_LOST_S)) == [(B, "PrepareReplica", R5)]
    asked = world.say(ReplicaPrepared(R5, "b:2"), B)
    assert ChangeMembers(K, R5, "b:2", R4, "d:1") in [
        effect.message for effect in world.of(events.ToAgent, asked)
    ]


def test_the_executor_on_a_lost_host_ends_its_cell() -> None:
    world = grouped()
    world.run("r1")
    world.commit("r1", 1)
    cell = world.execute()
    world.begin("r1", cell, 2)
    lose(world, A)
    world.wait(HOST_LOST_S + 1)
    assert "its host a has not answered for 30 s" in world.answer(cell)["evalue"]


def test_a_host_that_is_back_in_time_keeps_its_replica() -> None:
    world = grouped()
    lose(world, B)
    world.wait(HOST_LOST_S - 1)
    come(world, B, R2)
    assert told(world, world.wait(1000)) == []


def test_one_that_is_back_before_the_change_is_asked_for_keeps_it_too() -> None:
    world = grouped()
    lose(world, B)
    world.wait(HOST_LOST_S + 1)
    assert told(world, come(world, B, R2)) == [(D, "StopReplica", R4)]
    lose(world, B)
    assert told(world, world.wait(HOST_LOST_S + 1)) == [(D, "PrepareReplica", R5)], "names are used once"


def test_a_stale_replica_is_stopped_when_its_host_returns() -> None:
    world = grouped()
    lose(world, B)
    world.wait(HOST_LOST_S + 1)
    world.say(ReplicaPrepared(R4, "d:1"), D)
    changed(world)
    ready(world, R4, D)
    assert told(world, come(world, B, R2)) == [(B, "StopReplica", R2)]
    ready(world, R2, B)
    assert R2 not in world.fleet.ready()
    assert told(world, world.wait(1000)) == []


def test_without_a_majority_nothing_is_changed() -> None:
    world = grouped()
    lose(world, B)
    lose(world, C)
    assert told(world, world.wait(1000)) == []


def test_half_of_the_members_are_no_majority() -> None:
    world = World(replicas=2, hosts=(A, B, C))
    for host in (A, B, C):
        come(world, host)
    for name, host in ((R1, A), (R2, B)):
        world.say(ReplicaPrepared(name, f"{host}:1"), host)
        ready(world, name, host)
    lose(world, B)
    assert told(world, world.wait(1000)) == []


def test_without_a_spare_host_the_others_take_no_more_than_their_share() -> None:
    world = grouped((A, B, C))
    lose(world, B)
    assert told(world, world.wait(1000)) == []
    assert list(world.fleet.ready()) == [R1, R3]


def test_a_change_that_cannot_be_made_now_is_asked_for_again() -> None:
    world = grouped()
    lose(world, B)
    world.wait(HOST_LOST_S + 1)
    world.say(ReplicaPrepared(R4, "d:1"), D)
    assert told(world, changed(world, why="The leader hands over first.")) == []
    again = world.wait(CHANGE_AGAIN_S)
    assert told(world, again) == [(A, "ChangeMembers", R4), (C, "ChangeMembers", R4)]


def test_a_spare_host_that_prepares_nothing_is_given_up() -> None:
    world = grouped()
    lose(world, B)
    world.wait(HOST_LOST_S + 1)
    effects = world.wait(PREPARE_LIMIT_S)
    assert (D, "StopReplica", R4) in told(world, effects)


def test_a_broken_member_is_replaced_on_its_own_host_even_where_there_is_one_host_only() -> None:
    world = World().up()
    (host,) = world.hosts
    for number, name in enumerate(PLACES):
        world.say(ReplicaPrepared(name, f"a:{number}"))
    broken = world.say(MemberBroken(R3, "The Raft file j cannot be read."))
    assert told(world, broken) == [(host, "PrepareReplica", R4)]
    asked = world.say(ReplicaPrepared(R4, "a:4"))
    assert world.of(events.ToAgent, asked)[0].message == ChangeMembers(K, R4, "a:4", R3, "a:2")
    assert told(world, changed(world)) == [(host, "StopReplica", R3), (host, "StartReplica", R4)]


def test_a_wiped_host_gets_a_new_replica() -> None:
    world = grouped()
    world.feed(events.AgentGone(B))
    assert told(world, come(world, B)) == [(B, "PrepareReplica", R4)]


def test_a_host_that_was_late_for_the_group_gets_the_replica_that_was_meant_for_it() -> None:
    world = World(hosts=(A, B, C))
    for name, host in ((R1, A), (R2, B)):
        come(world, host)
        world.say(ReplicaPrepared(name, f"{host}:1"), host)
    world.wait(PEERS_WAIT_S + 1)
    assert told(world, come(world, C)) == [(C, "PrepareReplica", R3)]
    asked = world.say(ReplicaPrepared(R3, "c:1"), C)
    assert world.of(events.ToAgent, asked)[0].message == ChangeMembers(K, R3, "c:1", ReplicaId(""))


def test_a_router_that_takes_over_learns_who_was_replaced() -> None:
    world = World(hosts=(A, B, C, D))
    come(world, B, R2)
    ready(world, R2, B)
    members = {R1: A, R3: C, R4: D}
    told_first = come(world, A, R1, members=members, departed=(R2,))
    assert (B, "StopReplica", R2) in told(world, told_first)
    come(world, C, R3, members=members, departed=(R2,))
    come(world, D, R4, members=members, departed=(R2,))
    for name, host in members.items():
        ready(world, name, host)
    assert set(world.fleet.ready()) == set(members)
    assert told(world, world.wait(1000)) == []


def test_one_host_that_is_away_is_merely_late() -> None:
    world = World().up()
    for number, name in enumerate(PLACES):
        world.say(ReplicaPrepared(name, f"a:{number}"))
    lose(world, world.hosts[0])
    assert told(world, world.wait(1000)) == []
    assert len(world.fleet.ready()) == 3


def test_protocol_messages_travel() -> None:
    for message in (ChangeMembers(K, R4, "d:1", R2), StopReplica(K, R2, "it was replaced")):
        assert decoder(RouterToAgent).decode(encode(message)) == message


def test_the_only_hosts_agent_that_cannot_start_is_tried_again_though_cells_go_on() -> None:
    world = World()
    (host,) = world.hosts
    come(world, host)
    for name in (R1, R2, R3):
        world.say(ReplicaPrepared(name, f"{host}:{name}"), host)
        ready(world, name, host)
    world.feed(events.AgentGone(host))
    first = world.feed(events.AgentMissing(host, "AgentUnavailable", "No space left on device"))
    assert [effect.severity for effect in world.of(events.Log, first)] == ["warning"]
    tried = world.wait(LOOK_AGAIN_S)
    assert world.of(events.FindAgent, tried) == [events.FindAgent(host)]
    again = world.feed(events.AgentMissing(host, "AgentUnavailable", "No space left on device"))
    assert [effect.severity for effect in world.of(events.Log, again)] == ["info"], "it is told once"
