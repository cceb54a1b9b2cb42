"""Who runs the next cell: policies, pins, elections, and what has to be committed before a move."""

from __future__ import annotations

import random

import pytest

from replkernel.protocol.agent_to_router import (
    AgentWelcome,
    Committed,
    Elected,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
    WentBack,
)
from replkernel.protocol.envelope import Afresh
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.pages import SAVED_TYPE
from replkernel.protocol.router_to_agent import ElectExecutor, SettleReplica, StartReplica
from replkernel.records import HostName, Pin, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.placement import Placement, Policy
from replkernel.router.core.succession import COMPANY_LIMIT_S
from tests.support.router_world import HOST, World


def ballots(world: World) -> list[ElectExecutor]:
    """Return the elections that the router has called."""
    told = [effect.message for effect in world.of(events.ToAgent, world.all)]
    return [message for message in told if isinstance(message, ElectExecutor)]


def test_sticky_stays_and_never_waits_for_a_commit() -> None:
    world = World().up()
    assert [world.sent_to(world.run("r1")) for _ in range(3)] == [["r1"]] * 3


def test_rotate_moves_on_after_each_commit() -> None:
    world = World(policy="rotate").up()
    placed = []
    for seq, name in ((1, "r1"), (2, "r2"), (3, "r3"), (4, "r1")):
        placed += world.sent_to(world.run(name))
        world.commit(name, seq)
    assert placed == ["r1", "r2", "r3", "r1"]


def test_rotate_waits_for_the_commit_and_stays_when_it_does_not_come() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    cell = world.execute()
    world.wait(29)
    assert world.sent_to(cell) == []
    world.wait(2)
    assert world.sent_to(cell) == ["r1"]


def test_only_one_cell_waits_in_vain_for_a_commit_and_moves_begin_again_with_the_next_one() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    second = world.execute()
    world.wait(31)
    world.begin("r1", second)
    world.finish("r1", second)
    third = world.execute()
    assert world.sent_to(third) == ["r1"]
    world.begin("r1", third)
    world.finish("r1", third)
    world.commit("r1", world.envelope(third).seq)
    assert world.sent_to(world.execute()) == ["r2"]


def settling(world: World) -> int:
    """Return how often the executor has been told to make durable what it left for later."""
    told = [effect.message for effect in world.of(events.ToAgent, world.all)]
    return sum(isinstance(message, SettleReplica) for message in told)


def test_a_move_has_what_was_left_for_later_made_durable_and_gives_that_time() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    world.commit("r1", 1, owing=("model",))
    world.wait(300)
    cell = world.execute()
    assert (world.sent_to(cell), settling(world)) == ([], 1)
    world.wait(29)
    assert world.sent_to(cell) == []
    world.commit("r1", 1, audit=1)
    assert world.sent_to(cell) == ["r2"]


def test_a_change_never_made_durable_keeps_a_move_waiting_for_a_time_only() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    world.commit("r1", 1, owing=("model",))
    world.wait(300)
    cell = world.execute()
    world.wait(31)
    assert world.sent_to(cell) == ["r1"]


def test_who_does_not_move_has_nothing_made_durable() -> None:
    world = World().up()
    world.run("r1")
    world.commit("r1", 1, owing=("model",))
    assert (world.sent_to(world.execute()), settling(world)) == (["r1"], 0)


def test_random_is_the_same_for_the_same_seed_and_uses_every_replica() -> None:
    def places() -> list[str]:
        world, placed, name = World(policy="random").up(), [], "r1"
        for seq in range(1, 20):
            cell = world.execute()
            name = world.sent_to(cell)[0]
            placed.append(name)
            world.begin(name, cell)
            world.finish(name, cell)
            world.commit(name, seq)
        return placed

    first = places()
    assert first == places()
    assert set(first) == {"r1", "r2", "r3"}


def test_a_pin_holds_the_executor() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    world.commit("r1", 1, (Pin("sock", "socket", ReplicaId("r1"), Seq(1)),))
    assert world.sent_to(world.run("r1")) == ["r1"]
    world.commit("r1", 2)
    assert world.sent_to(world.execute()) == ["r2"]


@pytest.mark.parametrize("holder", ["comm", "subshell", "debugger"])
def test_comms_subshells_and_a_debugger_hold_the_executor(holder: str) -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    world.commit("r1", 1)
    if holder == "comm":
        opened = world.request("comm_open", {"comm_id": "c", "target_name": "t"})
        world.output("r1", SAVED_TYPE, opened, {"msg_id": opened, "seq": 1}, "stdin")
    elif holder == "subshell":
        request = world.request("create_subshell_request", channel="control")
        world.output("r1", "create_subshell_reply", request, {"status": "ok", "subshell_id": "x"}, "control")
    else:
        world.request("debug_request", {"command": "initialize"}, channel="control")
    assert world.sent_to(world.run("r1")) == ["r1"]
    world.commit("r1", 2)
    if holder == "comm":
        world.output("r1", "comm_close", "", {"comm_id": "c"})
    elif holder == "subshell":
        world.request("delete_subshell_request", {"subshell_id": "x"}, channel="control")
    else:
        world.request("debug_request", {"command": "disconnect"}, channel="control")
    assert world.sent_to(world.execute()) == ["r2"]


def test_after_a_loss_the_replicas_elect_and_the_winner_runs_with_the_elections_fence() -> None:
    world = World().up()
    world.run("r1")
    world.commit("r1", 1)
    world.lose("r1")
    cell = world.execute()
    (ballot,) = ballots(world)
    assert world.sent_to(cell) == []
    world.say(Elected(ballot.seq, ReplicaId("r3")))
    assert world.sent_to(cell) == ["r3"]
    assert world.envelope(cell).fence == ballot.fence
    assert world.envelope(cell).seq == ballot.seq


@pytest.mark.parametrize("answered", [True, False])
def test_without_a_winner_the_most_advanced_standby_is_designated(*, answered: bool) -> None:
    world = World().up("r1", "r2")
    world.run("r1")
    world.commit("r1", 1)
    world.ready("r3", applied=1)
    world.lose("r1")
    cell = world.execute()
    if answered:
        world.say(Elected(ballots(world)[0].seq, None))
    else:
        world.wait(3.1)
    assert world.sent_to(cell) == ["r3"]


def taken_over(
    policy: Policy = "sticky", *, logged: int = 7, pending: int = 0, newest: int = 7, whole: int | None = None
) -> World:
    """Return a router that takes over a kernel whose executor is r2, with its last results on their way."""
    world = World(policy=policy)
    world.feed(events.AgentFound(HOST, "token"))
    replicas = tuple(ReplicaId(name) for name in ("r1", "r2", "r3"))
    welcome = AgentWelcome(
        HOST, 2, "old", replicas=replicas, last_seq=Seq(logged), pending_seq=Seq(pending),
        newest_seq=Seq(newest), executor=ReplicaId("r2"), owing=whole is not None, whole_seq=Seq(whole or 0),
    )  # fmt: skip
    world.say(welcome)
    return world


def test_a_router_that_takes_over_knows_another_process_from_the_one_that_owes_something() -> None:
    world = taken_over(logged=7, whole=5)
    cell = world.execute()
    for name in ("r1", "r3", "r2"):
        world.ready(name, applied=5)
    world.wait(3.1)
    assert world.envelope(cell).afresh is not None
    world = taken_over(logged=7, whole=5)
    cell = world.execute()
    world.ready("r2", applied=7)
    assert (world.sent_to(cell), world.envelope(cell).afresh) == (["r2"], None)


def test_a_router_that_takes_over_keeps_the_executor_even_when_it_is_linked_last() -> None:
    world = taken_over("sticky")
    cell = world.execute()
    world.request("usage_request", channel="control")
    for name in ("r1", "r3", "r2"):
        assert world.sent_to(cell) == []
        world.ready(name, applied=7)
    assert world.sent_to(cell) == ["r2"]


def test_a_router_that_takes_over_speaks_for_the_incarnation_that_it_finds() -> None:
    world = taken_over("sticky")
    assert [effect.incarnation for effect in world.of(events.SpeakFor, world.all)] == ["old"]


def test_a_router_that_takes_over_does_not_wait_for_ever_for_the_executor() -> None:
    world = taken_over("sticky")
    cell = world.execute()
    world.ready("r1", applied=7)
    world.wait(2.1)
    assert world.sent_to(cell) == ["r1"]


def test_a_router_that_takes_over_waits_for_an_executor_that_lives_and_is_too_busy_to_be_linked() -> None:
    world = taken_over("sticky")
    cell = world.execute()
    world.ready("r1", applied=7)
    ends = Endpoints(*(f"ipc://r2-{kind}" for kind in ("s", "c", "i", "o")))
    world.say(ReplicaReady(ReplicaId("r2"), HOST, 9, ends, Seq(7), b"{}"))
    world.wait(10)
    assert world.sent_to(cell) == []
    world.wait(10)
    assert world.sent_to(cell) == ["r1"]


def test_a_cell_that_outlived_its_router_is_committed_before_the_executor_moves() -> None:
    world = taken_over("rotate", newest=8).up()
    cell = world.execute()
    assert world.sent_to(cell) == []
    world.commit("r2", 8)
    assert world.sent_to(cell) == ["r3"]
    assert world.envelope(cell).needs == 8


def test_results_on_their_way_when_a_router_takes_over_are_waited_for_when_their_process_dies() -> None:
    world = taken_over(logged=6, pending=7).up()
    world.lose("r2")
    cell = world.execute()
    assert world.sent_to(cell) == []
    world.commit("r2", 7)
    world.say(Elected(ballots(world)[0].seq, ReplicaId("r1")))
    assert world.sent_to(cell) == ["r1"]
    assert world.envelope(cell).needs == 7


def test_results_that_never_reach_the_log_are_not_needed_for_ever() -> None:
    """A cell that asked for them would wait for what nobody has."""
    world = taken_over(logged=6, pending=7).up()
    world.lose("r2")
    cell = world.execute()
    world.wait(5.1)
    world.say(Elected(ballots(world)[0].seq, ReplicaId("r1")))
    assert world.sent_to(cell) == ["r1"]
    assert world.envelope(cell).needs == 6
    assert world.envelope(cell).afresh == Afresh(0, unlogged=True), "the process tells that they are lost"


def test_results_whose_process_died_without_a_router_are_waited_for_as_well() -> None:
    world = taken_over(logged=6, pending=7)
    world.ready("r1", applied=6)
    cell = world.execute()
    world.wait(2.1)
    assert world.sent_to(cell) == []
    world.commit("r2", 7)
    assert world.sent_to(cell) == ["r1"]
    assert world.envelope(cell).needs == 7


def test_a_cell_that_runs_when_a_router_takes_over_is_not_needed_by_the_next() -> None:
    """It may be killed, and then leaves nothing."""
    world = taken_over(logged=6, newest=0).up()
    world.lose("r2")
    cell = world.execute()
    world.say(Elected(ballots(world)[0].seq, ReplicaId("r1")))
    assert world.sent_to(cell) == ["r1"]
    assert world.envelope(cell).needs == 6


def test_an_executor_that_died_with_its_agent_is_not_waited_for_when_the_agent_is_back() -> None:
    world = World(hosts=(HOST, HostName("other"))).up()
    world.run("r1")
    world.commit("r1", 1)
    cell = world.execute()
    world.feed(events.Undelivered(ReplicaId("r1"), cell))
    world.feed(events.AgentGone(HOST))
    world.feed(events.AgentFound(HOST, "token"))
    world.say(
        AgentWelcome(
            HOST, 3, "one", replicas=(ReplicaId("r1"), ReplicaId("r3")),
            last_seq=Seq(1), newest_seq=Seq(1), executor=ReplicaId("r1"),
        )
    )  # fmt: skip
    ends = Endpoints(*(f"ipc://born-again-{kind}" for kind in ("s", "c", "i", "o")))
    world.say(ReplicaReady(ReplicaId("r1"), HOST, 10, ends, Seq(0), b"{}"))
    assert [ballot.seq for ballot in ballots(world)[:1]] == [world.envelope(cell).seq + 1]
    world.say(Elected(ballots(world)[0].seq, ReplicaId("r2")))
    assert world.sent_to(cell) == ["r1", "r2"]


def test_a_single_survivor_needs_no_election() -> None:
    world = World(replicas=2).up()
    world.run("r1")
    world.commit("r1", 1)
    world.lose("r1")
    assert world.sent_to(world.execute()) == ["r2"]
    assert ballots(world) == []


def test_the_tail_of_a_lost_process_is_waited_for() -> None:
    world = World(replicas=2).up()
    world.run("r1")
    world.lose("r1")
    cell = world.execute()
    assert world.sent_to(cell) == []
    world.commit("r1", 1)
    assert world.sent_to(cell) == ["r2"]
    assert world.envelope(cell).needs == 1


def test_a_tail_that_never_comes_is_given_up_and_said() -> None:
    world = World(replicas=2).up()
    world.run("r1")
    world.lose("r1")
    cell = world.execute()
    world.wait(5.1)
    assert world.sent_to(cell) == ["r2"]
    assert world.envelope(cell).needs == 0
    assert world.envelope(cell).afresh == Afresh(1, unlogged=True)


def owes(world: World, replica: str, seq: int) -> None:
    """Have the log hold an execution while some variable is older than that."""
    world.say(Committed(ReplicaId(replica), Seq(seq), seq, 1, unaudited=("model",)))


def test_who_goes_on_for_a_lost_process_is_told_so_until_a_cell_has_run_there() -> None:
    world = World(replicas=2).up()
    world.run("r1")
    world.commit("r1", 1)
    world.run("r1")
    owes(world, "r1", 2)
    world.lose("r1")
    first = world.execute()
    assert world.envelope(first).afresh == Afresh(1), "the world counts no further"
    world.say(WentBack(ReplicaId("r2"), world.envelope(first).seq, Seq(1)))
    world.begin("r2", first, count=3)
    world.finish("r2", first)
    second = world.execute()
    assert (world.envelope(second).afresh, world.envelope(second).needs) == (None, world.envelope(first).seq)


def test_a_lost_process_has_a_moment_to_be_whole_with_what_its_keeper_has() -> None:
    world = World(replicas=2).up()
    world.run("r1")
    owes(world, "r1", 1)
    world.say(ReplicaLost(ReplicaId("r1"), "killed", returning=True, kept=Seq(1)))
    cell = world.execute()
    assert world.sent_to(cell) == []
    world.say(Committed(ReplicaId("r1"), Seq(1), 1, 1, audit=1))
    assert world.sent_to(cell) == ["r2"]


def test_questions_look_at_what_all_replicas_have() -> None:
    world = World(replicas=2).up()
    world.run("r1")
    world.commit("r1", 1)
    world.run("r1")
    owes(world, "r1", 2)
    look = world.router._parts.succession.look()
    assert look is not None
    assert look.needs == 1


def test_a_returned_replica_can_run_cells_again() -> None:
    world = World(replicas=1).up()
    world.run("r1")
    world.commit("r1", 1)
    world.lose("r1")
    cell = world.execute()
    world.ready("r1", applied=1)
    assert world.sent_to(cell) == ["r1"]


def test_a_group_that_a_router_prepared_and_never_started_is_started_by_the_next() -> None:
    world = World()
    world.feed(events.AgentFound(HOST, "token"))
    names = tuple(ReplicaId(f"r{number}") for number in (1, 2, 3))
    world.say(AgentWelcome(HOST, 3, incarnation="one", replicas=names))
    started = [effect for name in names for effect in world.say(ReplicaPrepared(name, f"a:{name}"))]
    calls = [effect.message for effect in started if isinstance(effect, events.ToAgent)]
    assert [type(call) for call in calls] == [StartReplica] * 3


def test_a_repeated_or_late_word_of_a_commit_changes_nothing() -> None:
    world = World().up()
    world.run("r1")
    world.commit("r1", 1)
    before = world.router._parts.succession.committed
    assert world.commit("r1", 1) == world.commit("r1", 0) == []
    assert world.router._parts.succession.committed == before


def test_rotate_waits_for_the_audit_and_the_next_replica_needs_it() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    world.commit("r1", 1, owing=("big",))
    cell = world.execute()
    world.wait(10)
    assert world.sent_to(cell) == []
    world.commit("r1", 1, audit=2)
    assert world.sent_to(cell) == ["r2"]
    envelope = world.envelope(cell)
    assert (envelope.needs, envelope.needs_audit, envelope.moves) == (1, 2, True)


def test_an_audit_that_takes_too_long_keeps_the_notebook_where_it_is_and_says_why_once() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    world.commit("r1", 1, owing=("big",))
    cell = world.execute()
    world.wait(31)
    assert world.sent_to(cell) == ["r1"]
    world.begin("r1", cell)
    told = [text for text in map(str, world.of(events.Publish, world.all)) if "stays on replica r1" in text]
    assert len(told) == 1
    assert "`big`" in told[0]
    world.finish("r1", cell)
    world.commit("r1", 2, owing=("big",))
    assert world.sent_to(world.run("r1")) == ["r1"]
    told = [text for text in map(str, world.of(events.Publish, world.all)) if "stays on replica r1" in text]
    assert len(told) == 1
    world.commit("r1", 3)
    assert world.sent_to(world.execute()) == ["r2"]


def test_an_execution_in_the_log_though_not_whole_is_not_given_up() -> None:
    world = World(replicas=2).up()
    world.run("r1")
    world.commit("r1", 1, owing=("big",))
    world.lose("r1")
    cell = world.execute()
    assert world.sent_to(cell) == ["r2"]
    assert (world.envelope(cell).needs, world.envelope(cell).needs_audit) == (1, 0)
    world.begin("r2", cell, count=2)
    assert "stream" not in world.seen(cell)


def test_a_router_that_takes_over_does_not_move_before_the_audit() -> None:
    world = World(policy="rotate")
    world.feed(events.AgentFound(HOST, "token"))
    welcome = AgentWelcome(
        host=HOST, agent_pid=2, incarnation="one",
        replicas=tuple(world.fleet.replicas), last_seq=Seq(4), newest_seq=Seq(4),
        executor=ReplicaId("r1"), owing=True,
    )  # fmt: skip
    world.say(welcome)
    world.up(applied=4)
    cell = world.execute()
    world.wait(10)
    assert world.sent_to(cell) == []
    world.commit("r1", 4, audit=1)
    assert world.sent_to(cell) == ["r2"]


def test_an_election_is_not_disturbed_by_the_commit_that_a_lost_executor_owed() -> None:
    world = World(policy="rotate").up()
    world.run("r1")
    world.wait(23)
    world.lose("r1")
    cell = world.execute()
    world.wait(41)
    assert world.sent_to(cell) == ["r2"]


def test_an_executor_that_holds_an_object_stays_though_another_replica_holds_one_too() -> None:
    placement = Placement("rotate", random.Random(1))
    r1, r2, r3 = (ReplicaId(name) for name in ("r1", "r2", "r3"))
    placement.pinned((Pin("g", "generator", r1, Seq(3)), Pin("h", "generator", r2, Seq(4))))
    placement.executor = r2
    assert placement.pick([r1, r2, r3], stay=False) == r2
    placement.executor = r3
    assert placement.pick([r1, r2, r3], stay=False) == r1


def test_a_lost_process_pins_nothing_more() -> None:
    placement = Placement("rotate", random.Random(1))
    r1, r2, r3 = (ReplicaId(name) for name in ("r1", "r2", "r3"))
    placement.executor = r1
    placement.pinned((Pin("g", "generator", r1, Seq(3)),))
    assert placement.pick([r1, r2, r3], stay=False) == r1
    placement.lost(r1, Seq(5))
    assert placement.pick([r1, r2, r3], stay=False) == r2
    placement.pinned((Pin("g", "generator", r1, Seq(3)), Pin("h", "generator", r1, Seq(6))))
    assert placement.pick([r1, r2, r3], stay=False) == r1


def test_the_second_cell_of_a_rotating_kernel_waits_for_a_second_replica_but_not_for_ever() -> None:
    world = World(policy="rotate").up("r1")
    assert world.sent_to(world.run("r1")) == ["r1"]
    world.commit("r1", 1)
    waiting = world.execute()
    world.wait(COMPANY_LIMIT_S - 1)
    assert world.sent_to(waiting) == []
    world.wait(2)
    assert world.sent_to(waiting) == ["r1"]


def test_a_rotating_kernel_goes_on_with_its_second_replica_as_soon_as_that_is_there() -> None:
    world = World(policy="rotate").up("r1")
    world.run("r1")
    world.commit("r1", 1)
    waiting = world.execute()
    world.ready("r3")
    assert world.sent_to(waiting) == ["r3"]
