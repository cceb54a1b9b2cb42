"""Executions: one at a time, each exactly once, whatever happens to who runs them."""

from __future__ import annotations

import pytest

from replkernel.protocol.agent_to_router import (
    AgentRefuses,
    AgentWelcome,
    CommitTrouble,
    Elected,
    ReplicaLost,
    RouteNotice,
)
from replkernel.protocol.router_to_agent import PrepareReplica
from replkernel.records import Fence, ReplicaId, Seq
from replkernel.router.core import events, traffic
from replkernel.router.core.unavailable import NO_REPLICA_LIMIT_S
from tests.support.router_world import HOST, World

RAN = ["busy", "execute_input", "execute_reply:ok", "idle"]


def test_a_cell_runs_once_with_one_of_everything() -> None:
    world = World().up()
    cell = world.run("r1")
    assert world.sent_to(cell) == ["r1"]
    assert world.seen(cell) == RAN


def test_the_second_cell_waits_for_the_first() -> None:
    world = World().up()
    first, second = world.execute(), world.execute()
    assert world.sent_to(second) == []
    world.begin("r1", first)
    world.finish("r1", first, idle=False)
    assert world.sent_to(second) == []
    world.status("r1", first, "idle")
    assert world.sent_to(second) == ["r1"]


def test_a_lost_idle_status_delays_the_next_cell_by_a_second_only() -> None:
    world = World().up()
    first, second = world.execute(), world.execute()
    world.begin("r1", first)
    world.finish("r1", first, idle=False)
    world.wait(1.1)
    assert world.sent_to(second) == ["r1"]


def test_a_process_that_says_nothing_of_its_cell_is_told_of_once() -> None:
    world = World().up()
    cell = world.execute()
    world.wait(9.9)
    assert world.seen(cell) == []
    world.wait(0.2)
    world.wait(60)
    assert world.seen(cell) == ["stream"]
    (told,) = [
        effect.content.decode()
        for effect in world.of(events.Publish, world.all)
        if effect.msg_type == "stream"
    ]
    assert "replica r1 (process " in told
    assert "has not begun this cell for 10 s" in told
    assert "still gets the notebook's variables ready" in told
    world.begin("r1", cell)
    world.finish("r1", cell)
    assert world.seen(cell)[-2:] == ["execute_reply:ok", "idle"]


def test_a_cell_is_not_forgotten_for_the_messages_that_come_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traffic, "ROUTES_MAX", 5)
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    for _ in range(6):
        world.request("usage_request", channel="control")
    world.wait(60)
    assert world.seen(cell) == ["busy", "execute_input"], "its process has not been silent"
    world.lose("r1")
    world.wait(60)
    assert world.seen(cell).count("busy") == 1
    assert world.seen(cell)[-2:] == ["execute_reply:error", "idle"]


def test_what_is_remembered_is_bounded_also_where_all_of_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "ROUTES_MAX", 2)
    world = World().up()
    known = traffic.Traffic()
    cells = [world.execute() for _ in range(3)]
    for cell in cells:
        known.give(world._requests[cell], ReplicaId("r1"))
        known.check_invariants()
    assert [known.waiting(cell) is not None for cell in cells] == [False, True, True]


def test_a_process_that_has_begun_its_cell_may_be_silent() -> None:
    world = World().up()
    cell = world.execute()
    world.status("r1", cell, "busy")
    world.wait(600)
    assert world.seen(cell) == ["busy"]


def test_a_cell_sent_before_any_replica_is_ready_runs_when_one_is() -> None:
    world = World()
    cell = world.execute()
    world.wait(20)
    assert world.seen(cell) == []
    world.up("r2")
    assert world.sent_to(cell) == ["r2"]
    assert world.envelope(cell).queued_s == 20


def test_waiting_for_a_replica_ends_when_its_time_comes_whatever_rounding_makes_of_the_difference() -> None:
    world = World(replicas=1).up()
    world.now = 39.98323142255905
    assert world.now + NO_REPLICA_LIMIT_S - world.now < NO_REPLICA_LIMIT_S
    world.lose("r1")
    cell = world.execute()
    world.wait(NO_REPLICA_LIMIT_S)
    assert "execute_reply:error" in world.seen(cell)


def test_numbers_and_fences_grow_and_needs_is_the_last_completed_cell() -> None:
    world = World().up()
    envelopes = [world.envelope(world.run("r1")) for _ in range(3)]
    assert [envelope.seq for envelope in envelopes] == [1, 2, 3]
    assert [envelope.needs for envelope in envelopes] == [0, 1, 2]
    fences = [envelope.fence for envelope in envelopes]
    assert fences == sorted(set(fences))


def test_a_cell_that_its_replica_refused_is_not_what_the_next_one_needs() -> None:
    world = World().up()
    world.run("r1")
    refused = world.execute()
    world.begin("r1", refused)
    world.refuse("r1", refused)
    after = world.envelope(world.run("r1"))
    assert (after.seq, after.needs) == (3, 1)


def test_a_kernel_that_is_taken_over_goes_on_counting() -> None:
    world = World()
    world.feed(events.AgentFound(world.hosts[0], "token"))
    world.say(
        AgentWelcome(
            world.hosts[0],
            2,
            incarnation="old",
            replicas=(ReplicaId("r1"),),
            last_seq=Seq(7),
            newest_seq=Seq(9),
            fence=Fence(40),
        )
    )
    assert not [m for m in world.of(events.ToAgent, world.all) if isinstance(m.message, PrepareReplica)]
    world.ready("r1", applied=7)
    cell = world.run("r1")
    assert (world.envelope(cell).seq, world.envelope(cell).fence, world.envelope(cell).needs) == (10, 41, 7)


def test_an_error_aborts_what_waits_and_nothing_that_comes_later() -> None:
    world = World().up()
    failing, waiting = world.execute(), world.execute()
    world.begin("r1", failing)
    world.finish("r1", failing, status="error")
    later = world.run("r1")
    assert world.seen(waiting) == ["busy", "execute_reply:aborted", "idle"]
    assert world.sent_to(waiting) == []
    assert world.seen(later) == RAN


def test_an_error_aborts_nothing_when_the_request_says_so() -> None:
    for options in ({"stop_on_error": False}, {"silent": True}):
        world = World().up()
        failing, waiting = world.execute(**options), world.execute()
        world.finish("r1", failing, status="error")
        assert world.sent_to(waiting) == ["r1"]


def test_questions_survive_an_abort() -> None:
    world = World(replicas=1).up()
    failing, question = world.execute(), world.request("inspect_request")
    world.finish("r1", failing, status="error")
    assert world.sent_to(question) == ["r1"]


def test_the_same_request_again_gets_the_same_reply_and_does_not_run() -> None:
    world = World().up()
    cell = world.run("r1", msg_id="again")
    world.request("execute_request", {"code": "pass"}, msg_id="again", repeated=True)
    assert world.sent_to(cell) == ["r1"]
    assert world.answer(cell)["status"] == "ok"


def test_the_same_request_while_it_runs_or_waits_is_ignored() -> None:
    world = World().up()
    running, waiting = world.execute(msg_id="a"), world.execute(msg_id="b")
    world.execute(msg_id="a")
    world.execute(msg_id="b")
    world.finish("r1", running)
    world.finish("r1", waiting)
    assert world.sent_to(running) == ["r1"]
    assert world.sent_to(waiting) == ["r1"]


def test_a_cell_that_took_effect_before_its_process_died_is_said_to_be_kept() -> None:
    world = World().up()
    world.run("r1")
    world.commit("r1", 1)
    doomed = world.execute()
    world.begin("r1", doomed, count=2)
    world.commit("r1", 2)
    world.lose("r1", "killed by SIGKILL")
    assert world.answer(doomed)["ename"] == "ExecutorLost"
    assert "what this cell changed is kept" in world.answer(doomed)["evalue"]
    assert "whether a cell that was to go back did" in world.answer(doomed)["evalue"]


def test_a_cell_whose_results_only_its_keeper_has_is_said_to_be_unsettled() -> None:
    """A full disk or a partition may keep them from the log until the next cell has taken their place."""
    world = World().up()
    doomed = world.execute()
    world.begin("r1", doomed, count=1)
    world.say(ReplicaLost(ReplicaId("r1"), "killed", returning=True, kept=Seq(1)), HOST)
    assert world.answer(doomed)["evalue"] == (
        "killed; it is not settled yet whether its changes are kept: look before it is run again"
    )


def test_a_replica_that_dies_mid_cell_costs_that_cell_only() -> None:
    world = World().up()
    world.run("r1")
    world.commit("r1", 1)
    doomed, waiting = world.execute(), world.execute()
    world.begin("r1", doomed, count=2)
    world.lose("r1", "killed by SIGKILL (out of memory)")
    assert world.seen(doomed) == ["busy", "execute_input", "error", "execute_reply:error", "idle"]
    assert world.answer(doomed)["ename"] == "ExecutorLost"
    assert world.answer(doomed)["evalue"] == (
        "killed by SIGKILL (out of memory); "
        "the notebook is back at the cell before this one: run this one again"
    )
    assert world.answer(doomed)["execution_count"] == 2
    assert world.seen(waiting) == ["busy", "execute_reply:aborted", "idle"]


def test_a_cell_lost_before_it_said_anything_is_still_shown_whole() -> None:
    world = World().up()
    doomed = world.execute("secret = 1")
    world.lose("r1")
    assert world.seen(doomed) == ["busy", "execute_input", "error", "execute_reply:error", "idle"]


def test_a_process_that_dies_between_reply_and_idle_has_done_its_cell() -> None:
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    world.finish("r1", cell, idle=False)
    world.lose("r1")
    assert world.seen(cell) == RAN


def test_a_lost_process_that_speaks_on_is_not_heard() -> None:
    world = World().up()
    doomed = world.execute()
    world.begin("r1", doomed)
    world.lose("r1")
    world.output("r1", "stream", doomed, {"text": "late"})
    world.finish("r1", doomed)
    assert world.seen(doomed).count("execute_reply:ok") == 0
    assert "stream" not in world.seen(doomed)


def test_without_any_replica_cells_end_with_the_reason_after_a_minute() -> None:
    world = World()
    cell = world.execute()
    world.wait(59)
    assert world.seen(cell) == []
    world.wait(2)
    assert world.seen(cell)[-2:] == ["execute_reply:error", "idle"]
    assert "within 60 s" in world.answer(cell)["evalue"]
    assert world.answer(world.execute())["ename"] == "NoReplicaReady"


def test_an_agent_that_cannot_be_had_ends_cells_at_once_with_its_own_sentence() -> None:
    world = World()
    cell = world.execute()
    world.feed(events.AgentMissing(world.hosts[0], "AgentUnavailable", "No room on disk."))
    assert world.answer(cell)["evalue"] == "No room on disk."
    assert world.answer(world.request("complete_request"))["status"] == "error"
    assert world.answer(world.request("kernel_info_request"))["banner"] == "own"


def test_agents_are_searched_for_again_when_a_later_cell_needs_them() -> None:
    world = World()
    world.feed(events.AgentMissing(world.hosts[0], "AgentUnavailable", "No."))
    world.wait(10)
    world.execute()
    assert world.of(events.FindAgent)
    world.up()
    assert world.seen(world.run("r1")) == RAN


def test_replicas_that_are_gone_for_good_end_cells_at_once() -> None:
    world = World(replicas=1).up()
    world.lose("r1", "exited with code 1", returning=False)
    cell = world.execute()
    assert "r1: exited with code 1" in world.answer(cell)["evalue"]


def test_an_interrupt_cancels_a_cell_that_was_not_started() -> None:
    world = World()
    cell, behind = world.execute(), world.execute()
    interrupt = world.request("interrupt_request", channel="control")
    assert world.answer(cell)["ename"] == "KeyboardInterrupt"
    assert world.seen(behind) == ["busy", "execute_reply:aborted", "idle"]
    assert world.seen(interrupt) == ["busy", "interrupt_reply:ok", "idle"]
    world.up()
    assert world.sent_to(cell) == []


def test_an_interrupt_for_the_router_before_this_one_ends_no_cell() -> None:
    world = World().up()
    running, waiting = world.execute(), world.execute()
    interrupt = world.request("interrupt_request", channel="control", stale=True)
    assert world.sent_to(interrupt) == []
    assert world.seen(interrupt) == ["busy", "interrupt_reply:ok", "idle"]
    assert (world.sent_to(running), world.seen(waiting)) == (["r1"], [])


def test_notices_are_shown_once_with_the_next_cell() -> None:
    world = World().up()
    world.say(RouteNotice("The store is slow."))
    world.say(CommitTrouble(ReplicaId("r1"), Seq(1), "The store is full."))
    world.say(CommitTrouble(ReplicaId("r1"), Seq(2), "The store is full."))
    first, second = world.run("r1"), world.run("r1")
    assert world.seen(first) == ["busy", "execute_input", "stream", "stream", "execute_reply:ok", "idle"]
    assert world.seen(second) == RAN


def test_a_reply_too_much_is_dropped() -> None:
    world = World().up()
    cell = world.run("r1")
    world.finish("r1", cell)
    assert world.seen(cell) == RAN


def test_a_cell_that_was_sent_to_a_dead_process_runs_on_another_one() -> None:
    world = World().up()
    world.commit("r1", world.envelope(world.run("r1")).seq)
    world.wait(1.0)
    cell = world.execute()
    world.lose("r1", ago_s=0.02)
    world.say(Elected(Seq(3), ReplicaId("r2")))
    assert world.sent_to(cell) == ["r1", "r2"]
    world.begin("r2", cell, 2)
    world.finish("r2", cell)
    assert world.seen(cell) == RAN


def test_a_cell_that_found_its_process_dead_runs_on_another_one() -> None:
    world = World().up()
    world.commit("r1", world.envelope(world.run("r1")).seq)
    cell = world.execute()
    world.feed(events.Undelivered(ReplicaId("r1"), cell))
    world.wait(0.1)
    world.lose("r1")
    world.say(Elected(Seq(3), ReplicaId("r2")))
    assert world.sent_to(cell) == ["r1", "r2"]


def test_a_cell_that_found_its_process_dead_does_not_say_that_the_process_is_stopped() -> None:
    world = World().up()
    cell = world.execute()
    world.feed(events.Undelivered(ReplicaId("r1"), cell))
    world.wait(60)
    assert world.seen(cell) == []


def notes_on(world: World, msg_id: str) -> list[str]:
    """Return what the journal was told of where an execution is, in order."""
    told = world.of(events.Given, world.all) + world.of(events.TakenBack, world.all)
    mine = sorted((note for note in told if note.msg_id == msg_id), key=world.all.index)
    return [str(note.replica) if isinstance(note, events.Given) else "nobody" for note in mine]


def test_a_cell_that_found_its_process_dead_is_nobodys_also_for_the_next_router() -> None:
    world = World().up()
    world.commit("r1", world.envelope(world.run("r1")).seq)
    cell = world.execute()
    world.feed(events.Undelivered(ReplicaId("r1"), cell))
    assert notes_on(world, cell) == ["r1", "nobody"]
    world.lose("r1")
    world.say(Elected(Seq(3), ReplicaId("r2")))
    assert notes_on(world, cell)[-1] == "r2"


def test_a_cell_that_waits_again_because_its_process_was_dead_waits_also_for_the_next_router() -> None:
    world = World().up()
    world.commit("r1", world.envelope(world.run("r1")).seq)
    world.wait(1.0)
    cell = world.execute()
    world.lose("r1", ago_s=0.02)
    assert world.sent_to(cell) == ["r1"]
    assert notes_on(world, cell) == ["r1", "nobody"]


def test_a_cell_that_began_stays_its_replicas_whatever_is_heard_of_that() -> None:
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    world.feed(events.Undelivered(ReplicaId("r1"), cell))
    world.lose("r1")
    assert notes_on(world, cell) == ["r1"]
    assert world.sent_to(cell) == ["r1"]


def test_a_cell_that_may_have_begun_is_never_sent_again() -> None:
    for began in (True, False):
        world = World().up()
        cell = world.execute()
        if began:
            world.begin("r1", cell)
        else:
            world.wait(0.5)
        world.lose("r1", ago_s=0.1 if not began else 60.0)
        assert world.sent_to(cell) == ["r1"]
        assert "execute_reply:error" in world.seen(cell)


def test_a_cell_ends_when_its_process_died_while_nobody_watched_and_another_one_came() -> None:
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    world.feed(events.AgentGone(HOST))
    world.feed(events.AgentFound(HOST, "token"))
    world.wait(1.0)
    world.ready("r1")
    assert world.seen(cell)[-2:] == ["execute_reply:error", "idle"]
    assert "ended while its host agent was away" in world.answer(cell)["evalue"]
    after = world.execute()
    assert world.sent_to(cell) == ["r1"]
    world.wait(4)
    assert world.sent_to(after)


def test_a_cell_after_a_lost_one_is_given_the_next_count() -> None:
    world = World().up()
    world.run("r1")
    lost = world.execute()
    world.begin("r1", lost, 2)
    world.lose("r1")
    assert world.answer(lost)["execution_count"] == 2
    after = world.execute()
    world.wait(5.1)
    world.wait(3.1)
    assert world.envelope(after).counted == 2


def test_an_agent_that_refuses_is_looked_for_once_more_before_it_is_given_up() -> None:
    world = World()
    world.feed(events.AgentFound(HOST, "a token of its predecessor"))
    told = world.say(AgentRefuses("it was not shown its token"))
    assert events.FindAgent(HOST) in told
    world.feed(events.AgentFound(HOST, "its token"))
    told = world.say(AgentRefuses("the key is another kernel's"))
    assert events.FindAgent(HOST) not in told
    cell = world.execute()
    assert "the key is another kernel's" in world.answer(cell)["evalue"]
