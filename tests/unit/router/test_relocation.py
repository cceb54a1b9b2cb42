"""A replica that moves: its steps, what takes it back, what is past its turning point, the next router."""

from __future__ import annotations

import random

import pytest

from replkernel.leasing.wire import (
    FromClient,
    KernelHere,
    MoveDenied,
    MoveFailed,
    MoveOver,
    MoveReplica,
    MoveWish,
    ReplicaMoved,
    Waiting,
)
from replkernel.protocol.agent_to_router import (
    CheckpointFound,
    CheckpointWritten,
    KernelHibernated,
    MembersChanged,
    ReplicaPrepared,
    ReplicaReady,
)
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.progress import GPU_REQUEST as GPUS
from replkernel.protocol.progress import REQUEST as PROGRESS
from replkernel.protocol.router_to_agent import ChangeMembers, SettleReplica, StartReplica
from replkernel.records import HostName, MoveRecord, Pin, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.move import ADD_LIMIT_S, FIND_LIMIT_S, SETTLE_LIMIT_S
from replkernel.router.core.replacement import CHANGE_LIMIT_S, HOST_LOST_S, JOIN_LIMIT_S, PREPARE_LIMIT_S
from tests.support.router_world import World
from tests.unit.router.test_replacement import (
    R1,
    R2,
    R3,
    R4,
    R5,
    A,
    B,
    C,
    D,
    K,
    come,
    grouped,
    lose,
    ready,
    told,
)

E = HostName("e")
ORDER = MoveReplica("migration-1/1", D, B)
OLD = {R1: "a:1", R2: "b:1", R3: "c:1"}
FOUR = {**OLD, R4: "d:1"}
AFTER = {R1: "a:1", R3: "c:1", R4: "d:1"}


def world_of(*hosts: HostName) -> World:
    """Return a kernel on a, b, c whose scheduler listens."""
    world = grouped(hosts or (A, B, C))
    world.leases._moves = True
    world.feed(events.SchedulerUp())
    return world


def answers(world: World) -> list[FromClient]:
    return [said for said in world.told(world.all) if isinstance(said, ReplicaMoved | MoveFailed)]


def kept(world: World) -> list[MoveRecord | None]:
    return [effect.move for effect in world.of(events.RememberMove, world.all)]


def changed(
    world: World, peers: dict[ReplicaId, str], name: ReplicaId = R4, why: str = ""
) -> list[events.Effect]:
    return world.say(MembersChanged(K, name, {} if why else peers, "theirs", why=why), A)


def wishes(world: World, effects: list[events.Effect] | None = None) -> list[ChangeMembers]:
    found = [effect.message for effect in world.of(events.ToAgent, effects)]
    return list(dict.fromkeys(message for message in found if isinstance(message, ChangeMembers)))


STEPS = ("ordered", "found", "prepared", "added", "linked", "left")


def play(world: World, until: str, order: MoveReplica = ORDER) -> list[events.Effect]:
    """Take a move so far; return the effects of the last step."""
    effects: list[events.Effect] = []
    for step in STEPS[: STEPS.index(until) + 1]:
        match step:
            case "ordered":
                effects = world.scheduler(order)
            case "found":
                effects = come(world, D)
            case "prepared":
                effects = world.say(ReplicaPrepared(R4, "d:1"), D)
            case "added":
                effects = changed(world, FOUR)
            case "linked":
                effects = ready(world, R4, D)
            case "left":
                effects = changed(world, AFTER)
    return effects


def test_the_new_one_has_the_state_before_the_old_one_goes() -> None:
    world = world_of()
    assert world.of(events.FindAgent, world.scheduler(ORDER)) == [events.FindAgent(D, starts=False)]
    assert told(world, come(world, D)) == [(D, "PrepareReplica", R4)]
    prepared = world.say(ReplicaPrepared(R4, "d:1"), D)
    assert wishes(world, prepared) == [ChangeMembers(K, R4, "d:1")], "nobody leaves"
    (start,) = [effect.message for effect in world.of(events.ToAgent, changed(world, FOUR))]
    assert isinstance(start, StartReplica)
    assert (start.peers, start.joining) == (FOUR, True)
    assert world.leases.scheduler.hosts == (A, B, C), "what is on its way is nowhere yet"
    linked = ready(world, R4, D)
    assert wishes(world, linked) == [ChangeMembers(K, R4, "d:1", R2)]
    assert answers(world) == []
    left = changed(world, AFTER)
    assert (B, "StopReplica", R2) in told(world, left)
    assert answers(world) == [ReplicaMoved(ORDER.order)]
    assert list(world.fleet.ready()) == [R1, R3, R4]
    (here,) = [said for said in world.told(world.all)[-2:] if isinstance(said, KernelHere)]
    assert set(here.hosts) == {A, C, D}
    assert told(world, world.wait(1000)) == []


def test_a_move_is_in_the_record_before_it_is_made() -> None:
    world = world_of()
    play(world, "left")
    move = MoveRecord("r4", "d", "r2")
    assert kept(world) == [
        move,
        MoveRecord("r4", "d", "r2", "d:1"),
        MoveRecord("r4", "d", "r2", "d:1", settled=True),
        None,
    ]
    assert world.of(events.RememberMove, world.all)[-1].guests == (D,)
    kinds = [type(effect.message if isinstance(effect, events.ToAgent) else effect) for effect in world.all]
    assert kinds.index(events.RememberMove) < kinds.index(ChangeMembers)


@pytest.mark.parametrize("until", ["found", "prepared", "added"])
def test_a_host_that_dies_on_the_way_takes_the_move_back(until: str) -> None:
    world = world_of()
    play(world, until)
    asked = until != "found"
    world.feed(events.AgentGone(D))
    if asked:
        assert wishes(world)[-1:] == [ChangeMembers(K, R4, "", R4, "d:1")]
        assert answers(world) == [], "not before it is taken back"
        changed(world, OLD)
    (failed,) = answers(world)
    assert isinstance(failed, MoveFailed)
    assert "the agent of host d went away" in failed.why
    assert set(world.fleet.replicas) == {R1, R2, R3}
    assert kept(world)[-1] is None
    assert world.fleet.new_name() == R5, "names are used once"
    assert told(world, come(world, D, R4)) == [(D, "StopReplica", R4)], "what returns is stopped"


def test_a_late_word_about_the_beginning_does_not_end_the_undoing() -> None:
    world = world_of()
    play(world, "prepared")
    world.feed(events.AgentGone(D))
    changed(world, FOUR)
    assert answers(world) == []
    again = world.wait(CHANGE_LIMIT_S + 1)
    assert wishes(world, again) == [ChangeMembers(K, R4, "", R4, "d:1")]
    changed(world, OLD)
    assert len(answers(world)) == 1


@pytest.mark.parametrize(
    ("until", "limit_s"),
    [
        ("ordered", FIND_LIMIT_S),
        ("found", PREPARE_LIMIT_S),
        ("prepared", ADD_LIMIT_S),
        ("added", JOIN_LIMIT_S),
    ],
)
def test_no_step_takes_for_ever(until: str, limit_s: float) -> None:
    world = world_of()
    play(world, until)
    effects = world.wait(limit_s + 1)
    if until in ("prepared", "added"):
        assert ChangeMembers(K, R4, "", R4, "d:1") in wishes(world, effects)
        changed(world, OLD)
    (failed,) = answers(world)
    assert "in time" in failed.why  # type: ignore[union-attr]
    assert set(world.fleet.replicas) == {R1, R2, R3}


def test_a_host_without_an_agent_is_said_at_once() -> None:
    world = world_of()
    world.scheduler(ORDER)
    world.feed(
        events.AgentMissing(D, "AgentUnavailable", "host d has no agent that can be reached from here")
    )
    assert answers(world) == [MoveFailed(ORDER.order, "host d has no agent that can be reached from here")]


def test_nobody_waits_for_it_any_more() -> None:
    world = world_of()
    play(world, "added")
    assert wishes(world, world.scheduler(MoveOver(D))) == [ChangeMembers(K, R4, "", R4, "d:1")]
    assert told(world, changed(world, OLD)) == [(D, "StopReplica", R4)]


def test_past_the_turning_point_it_is_completed() -> None:
    world = world_of()
    play(world, "linked")
    world.scheduler(MoveOver(D))
    world.feed(events.AgentGone(D))
    changed(world, AFTER)
    assert answers(world) == [ReplicaMoved(ORDER.order)]
    assert set(world.fleet.replicas) == {R1, R3, R4}


def test_an_order_that_is_known_is_answered_again_and_another_one_waits_for_the_undoing() -> None:
    world = world_of()
    play(world, "added")
    assert told(world, world.scheduler(ORDER)) == []
    other = MoveReplica("migration-1/2", E, B)
    world.scheduler(other)
    assert not world.of(events.FindAgent)
    assert events.FindAgent(E, starts=False) in changed(world, OLD)
    assert world.told(world.scheduler(ORDER)) == answers(world)[:1]


def test_the_executor_leaves_only_when_its_cell_is_over_and_committed() -> None:
    world = world_of()
    cell = world.execute()
    world.begin("r1", cell)
    play(world, "linked", MoveReplica("migration-1/1", D, A))
    assert len(wishes(world, world.all)) == 1
    world.finish("r1", cell)
    assert len(wishes(world, world.all)) == 1
    effects = world.commit("r1", 1)
    assert wishes(world, effects) == [ChangeMembers(K, R4, "d:1", R1)]
    following = world.execute()
    assert world.sent_to(following) == ["r4"], "nothing is sent to who leaves"


def test_a_change_that_the_executor_left_for_later_is_durable_before_it_leaves() -> None:
    world = world_of()
    world.run("r1")
    world.commit("r1", 1, owing=("model",))
    effects = play(world, "linked", MoveReplica("migration-1/1", D, A))
    assert [effect for effect in world.of(events.ToAgent, effects) if effect.host == A] == [
        events.ToAgent(A, SettleReplica(K, R1))
    ]
    assert wishes(world, world.commit("r1", 1, audit=1)) == [ChangeMembers(K, R4, "d:1", R1)]


def test_a_cell_that_does_not_end_keeps_its_replica() -> None:
    world = world_of()
    world.begin("r1", world.execute())
    play(world, "linked", MoveReplica("migration-1/1", D, A))
    world.wait(SETTLE_LIMIT_S + 1)
    changed(world, OLD)
    assert "r1 did not end its cell" in answers(world)[0].why  # type: ignore[union-attr]


def test_no_cell_goes_to_one_that_may_be_taken_back() -> None:
    world = grouped((A, B, C))
    world.router._parts.placement._policy = "rotate"
    world.feed(events.SchedulerUp())
    play(world, "added")
    world.begin("r1", first := world.execute())
    world.say(ReplicaReady(R4, D, 9, Endpoints("s", "c", "i", "o"), Seq(0), b"{}"), D)
    world.finish("r1", first)
    assert R4 not in world.fleet.ready()


def test_a_replica_that_cannot_travel_stays() -> None:
    world = world_of()
    world.run("r2")
    world.commit("r2", 1, (Pin("f", "file", R2, Seq(1)),))
    world.scheduler(ORDER)
    assert answers(world) == [MoveFailed(ORDER.order, "replica r2 holds variables that cannot travel")]


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (MoveReplica("one", B, A), "host b has a replica of this kernel already"),
        (MoveReplica("one", E, D), "host d has no replica of this kernel"),
    ],
)
def test_orders_that_cannot_be(order: MoveReplica, why: str) -> None:
    world = world_of()
    world.scheduler(order)
    assert answers(world) == [MoveFailed("one", why)]


def test_one_that_is_there_already_is_told_so() -> None:
    world = world_of()
    world.scheduler(MoveReplica("one", C, D))
    assert answers(world) == [ReplicaMoved("one")]


def test_a_lost_replica_is_replaced_after_the_move_and_no_move_begins_before() -> None:
    world = world_of(A, B, C, E)
    play(world, "added")
    lose(world, C)
    assert not [wish for wish in wishes(world, world.wait(HOST_LOST_S + 1)) if wish.leaves == R3]
    ready(world, R4, D)
    effects = changed(world, AFTER)
    (begun,) = [place for place, kind, name in told(world, effects) if (kind, name) == ("PrepareReplica", R5)]
    assert begun in (B, E)
    world.scheduler(MoveReplica("next", B, A))
    assert len(answers(world)) == 1


def test_a_lost_guests_replica_comes_back_to_the_settings_hosts() -> None:
    world = world_of(A, B, C)
    play(world, "left")
    lose(world, D)
    assert (B, "PrepareReplica", R5) in told(world, world.wait(HOST_LOST_S + 1)), "the host that it left"
    shown = [log.text for log in world.of(events.Log, world.all) if log.severity == "warning"]
    assert not [text for text in shown if text == "it is not there"], "nobody is told all the time"


def test_a_kernel_that_is_put_to_rest_forgets_its_move() -> None:
    world = world_of()
    play(world, "added")
    world.request("replkernel_hibernate_request", channel="control")
    for host in (A, B, C, D):
        world.say(CheckpointWritten(K, "name" if host == A else ""), host)
    for host in (A, B, C, D):
        world.say(KernelHibernated(K), host)
    assert world.fleet.asleep
    assert len(world.fleet.replicas) == 3
    assert kept(world)[-1] is None
    assert isinstance(answers(world)[0], MoveFailed)


def test_the_cell_shows_where_to_and_why_not() -> None:
    world = world_of()
    cell = world.needs(2)
    request = f"k:{cell}"
    play(world, "found")
    world.scheduler(Waiting(request, 0))
    lines = [effect.content.decode() for effect in world.all if isinstance(effect, events.Publish)]
    assert "moving this notebook's state to d" in lines[-1]
    world.feed(events.AgentGone(D))
    world.scheduler(Waiting(request, 1))
    lines = [effect.content.decode() for effect in world.all if isinstance(effect, events.Publish)]
    assert "It could not move to d: the agent of host d went away." in lines[-1]


def test_a_move_that_the_notebook_wants_is_asked_for_and_told() -> None:
    world = world_of()
    cell = world.execute("%replkernel migrate d")
    world.begin("r1", cell)
    question = {"verb": "migrate", "host": "d"}
    asked = world.output("r1", "replkernel_gpu_request", cell, question, "stdin")
    assert world.told(asked) == [MoveWish(D)]
    world.finish("r1", cell)
    world.commit("r1", 1)
    world.scheduler(MoveDenied(D, "No replica moves: no host d is up."))
    warned = [log.text for log in world.of(events.Log, world.all) if log.severity == "warning"]
    assert warned[-1] == "No replica moves: no host d is up."
    world.output("r1", "replkernel_gpu_request", cell, question, "stdin")
    play(world, "left")
    warned = [log.text for log in world.of(events.Log, world.all) if log.severity == "warning"]
    assert warned[-1] == "One of this notebook's replicas is on d now."


def standing(world: World) -> dict[str, str] | None:
    """Return what a page is told of the move."""
    said: dict[str, str] | None = world.answer(world.request(PROGRESS, {}, channel="control"))["move"]
    return said


def want(world: World) -> list[FromClient]:
    """Have a page ask for a move; return what the scheduler hears."""
    world.request(GPUS, {"verb": "migrate", "host": "d"}, channel="control")
    return world.told()


def test_a_page_asks_for_a_move_and_is_told_how_it_stands_until_it_is_over() -> None:
    world = world_of()
    assert standing(world) is None
    assert want(world) == [MoveWish(D)]
    assert standing(world) == {"host": "d", "trouble": ""}
    world.scheduler(MoveDenied(D, "No replica moves: no host d is up."))
    assert standing(world) == {"host": "d", "trouble": "no host d is up"}
    want(world)
    play(world, "linked")
    assert standing(world) == {"host": "d", "trouble": ""}
    changed(world, AFTER)
    assert standing(world) is None


def test_a_page_is_told_why_a_move_came_to_nothing_until_another_is_asked_for() -> None:
    world = world_of()
    want(world)
    play(world, "found")
    world.feed(events.AgentGone(D))
    assert standing(world) == {"host": "d", "trouble": "the agent of host d went away"}
    want(world)
    assert standing(world) == {"host": "d", "trouble": ""}


def test_a_move_that_was_asked_for_in_vain_is_told_when_the_scheduler_goes_away() -> None:
    world = world_of()
    want(world)
    world.feed(events.SchedulerDown("It does not answer."))
    told_of = standing(world)
    assert told_of is not None and "went away before it answered" in told_of["trouble"]
    world = world_of()
    want(world)
    world.scheduler(ORDER)
    world.feed(events.SchedulerDown("It does not answer."))
    assert standing(world) == {"host": "d", "trouble": ""}, "it is under way, and goes on"


# -- the next router ---------------------------------------------------------------------------------------


def next_router(move: MoveRecord | None, **more: object) -> World:
    """Return a router that finds the group on a, b, c, and the record of a move to d."""
    world = World(hosts=(A, B, C), guests=(D,), move=move)
    for name, host in ((R1, A), (R2, B), (R3, C)):
        members = {R1: A, R2: B, R3: C, **({R4: D} if more.get("joined") else {})}
        come(world, host, name, members=members)
        ready(world, name, host)
    come(world, D, *((R4,) if more.get("there", True) else ()))
    return world


def test_the_next_router_takes_back_what_had_not_turned() -> None:
    world = next_router(MoveRecord("r4", "d", "r2", "d:1"))
    asked = [
        effect.host
        for effect in world.of(events.ToAgent, world.all)
        if effect.message == ChangeMembers(K, R4, "", R4, "d:1")
    ]
    assert asked == [A, B, C, D], "whoever leads hears of it as soon as it is there"
    changed(world, OLD)
    assert set(world.fleet.replicas) == {R1, R2, R3}
    assert kept(world)[-1] is None
    assert (D, "StopReplica", R4) in told(world, world.all)


def test_the_next_router_stops_what_was_only_prepared() -> None:
    world = next_router(MoveRecord("r4", "d", "r2"))
    world.wait(CHANGE_LIMIT_S)
    assert set(world.fleet.replicas) == {R1, R2, R3}
    assert not wishes(world, world.all)
    assert (D, "StopReplica", R4) in told(world, world.all)


def test_the_next_router_completes_what_had_turned() -> None:
    world = next_router(MoveRecord("r4", "d", "r2", "d:1", settled=True), joined=True)
    ready(world, R4, D)
    effects = world.all + world.wait(CHANGE_LIMIT_S)
    assert ChangeMembers(K, R4, "d:1", R2) in wishes(world, effects)
    changed(world, AFTER)
    assert set(world.fleet.replicas) == {R1, R3, R4}
    assert list(world.fleet.ready()) == [R1, R3, R4]
    assert kept(world)[-1] is None


def test_the_next_router_forgets_a_move_of_a_group_that_was_given_up() -> None:
    world = World(hosts=(A, B, C), guests=(D,), move=MoveRecord("r4", "d", "r2", "d:1", settled=True))
    for host in (A, B, C, D):
        come(world, host)
    world.wait(1)
    world.say(CheckpointFound(K, "name", "digest", 1, Seq(3), Seq(3)), A)
    for name, host in ((R1, A), (R4, D), (R3, C)):
        if name in world.fleet.replicas:
            world.say(ReplicaPrepared(name, f"{host}:2"), host)
    world.wait(PREPARE_LIMIT_S)
    assert world.fleet.grouped
    assert not [wish for wish in wishes(world, world.all) if wish.address == "d:1"], "no address of before"
    assert kept(world)[-1] is None
    assert len(world.fleet.replicas) == 3


# -- whatever happens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
def test_under_any_order_of_events_three_are_left(seed: int) -> None:
    """The group as its leader has it: whatever is asked for is done, or fails, or is answered late."""
    dice = random.Random(seed)
    world = world_of()
    group, late = dict(OLD), []
    orders = 0
    for _ in range(40):
        for wish in wishes(world):
            if dice.random() < 0.8:
                group = {name: at for name, at in group.items() if name != wish.leaves}
                if wish.address:
                    group[wish.replica] = wish.address
                late.append(MembersChanged(K, wish.replica, dict(group), "theirs"))
            else:
                late.append(MembersChanged(K, wish.replica, why="no majority"))
        act = dice.randrange(8)
        coming = world.fleet.coming
        if act == 0:
            orders += 1
            source = dice.choice([name for name, host in world.fleet.hosts.items() if host.replicas])
            world.scheduler(MoveReplica(f"order-{orders}", dice.choice((D, E, B)), source))
        elif act == 1:
            world.scheduler(MoveOver(dice.choice((D, E))))
        elif act == 2 and late:
            world.say(late.pop(0), A)
        elif act == 3 and coming:
            host = world.fleet.replicas[coming].host
            if world.fleet.hosts[host].welcomed:
                world.say(ReplicaPrepared(coming, f"{host}:{coming}"), host)
        elif act == 4 and coming and coming in group:
            ready(world, coming, world.fleet.replicas[coming].host)
        elif act == 5:
            host = dice.choice((D, E))
            if host in world.fleet.hosts and world.fleet.hosts[host].welcomed and dice.random() < 0.4:
                lose(world, host)
            elif host in world.fleet.hosts and not world.fleet.hosts[host].welcomed:
                come(world, host)
        else:
            world.wait(dice.choice((0.1, 2.0, 20.0)))
    settle(world, group, late)
    assert len(group) == 3
    assert set(world.fleet.replicas) == set(group)


def settle(world: World, group: dict[ReplicaId, str], late: list[MembersChanged]) -> None:
    """Let everybody answer until nothing moves."""
    for _ in range(60):
        for wish in wishes(world):
            for name in [name for name in group if name == wish.leaves]:
                del group[name]
            if wish.address:
                group[wish.replica] = wish.address
            late.append(MembersChanged(K, wish.replica, dict(group), "theirs"))
        if late:
            world.say(late.pop(0), A)
            continue
        coming = world.fleet.coming
        if not coming and not world.router._relocation.active:
            return
        world.wait(20.0)
    raise AssertionError("it does not come to rest")
