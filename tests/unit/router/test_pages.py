"""Widgets hold no notebook: what a page changes is durable before a rest or a move, and goes on after it."""

from __future__ import annotations

import json

import pytest

from replkernel.protocol.agent_to_router import (
    AgentWelcome,
    CheckpointFound,
    CheckpointWritten,
    Elected,
    KernelHibernated,
    ReplicaPrepared,
)
from replkernel.protocol.pages import SAVED_TYPE
from replkernel.protocol.router_to_agent import ElectExecutor, HibernateKernel, StartReplica
from replkernel.records import Fence, KernelId, ReplicaId, Seq
from replkernel.router.core import comm_messages, events
from replkernel.router.core.comms import COMMS_MAX, Comms
from replkernel.router.core.placement import Policy
from replkernel.router.core.succession import COMMIT_LIMIT_S
from tests.support.router_world import HOST, World

K = KernelId("k")
CONTROL = {"comm_id": "c", "target_name": "jupyter.widget.control"}
FOUND = CheckpointFound(K, "k/checkpoint", "digest", 1, Seq(1), Seq(1), Fence(1), 1)


def with_widget(policy: Policy = "sticky") -> World:
    """Return a kernel whose first cell has made a widget and is durable."""
    world = World(policy=policy).up()
    for number, name in enumerate(("r1", "r2", "r3")):
        world.say(ReplicaPrepared(ReplicaId(name), f"127.0.0.1:{number}"))
    cell = world.execute()
    world.begin("r1", cell)
    world.output("r1", "comm_open", cell, {"comm_id": "w", "target_name": "jupyter.widget"})
    world.finish("r1", cell)
    world.commit("r1", 1)
    return world


def move(world: World, subshell: str | None = None, kind: str = "comm_msg") -> str:
    """Have a page move the widget."""
    return world.request(kind, {"comm_id": "w"}, subshell_id=subshell)


def saved(world: World, name: str, msg_id: str, seq: int, audit: int = 0) -> None:
    """Have a process say with which audit all is proposed that the message changed."""
    world.output(name, SAVED_TYPE, msg_id, {"msg_id": msg_id, "seq": seq, "audit": audit}, "stdin")


def ask(world: World) -> str:
    return world.request("replkernel_hibernate_request", channel="control")


def wishes(world: World) -> list[str]:
    """Return what agents were told of a rest, ever."""
    said = [effect.message for effect in world.of(events.ToAgent, world.all)]
    return [message.phase for message in said if isinstance(message, HibernateKernel)]


def rested(world: World, seq: int) -> None:
    world.say(CheckpointWritten(K, "c", Seq(seq)))
    world.say(KernelHibernated(K))


def woken(world: World, seq: int) -> None:
    """Have the agents start replicas from the checkpoint of a kernel at rest that is needed."""
    world.feed(events.AgentFound(HOST, "token"))
    world.say(AgentWelcome(HOST, 2), HOST)
    world.say(CheckpointFound(K, "k/checkpoint", "digest", 1, Seq(seq), Seq(seq), Fence(seq), 1))
    for number, name in enumerate(("r1", "r2", "r3")):
        world.say(ReplicaPrepared(ReplicaId(name), f"127.0.0.1:{number}"))
    assert [e for e in world.of(events.ToAgent) if isinstance(e.message, StartReplica)]
    for name in ("r1", "r2", "r3"):
        world.ready(name, seq)


def test_a_kernel_rests_with_widgets_on_a_page() -> None:
    world = with_widget()
    wish = ask(world)
    rested(world, 1)
    assert world.answer(wish)["state"] == "hibernated"
    assert [e for e in world.of(events.Publish, world.all) if e.msg_type == "comm_close"] == []


def test_a_page_that_comes_while_a_kernel_rests_learns_of_its_widgets() -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    comms = {"w": {"target_name": "jupyter.widget"}}
    asked = world.request("comm_info_request", {"target_name": "jupyter.widget"})
    assert world.answer(asked)["comms"] == comms
    assert world.answer(world.request("comm_info_request", {"target_name": "other"}))["comms"] == {}


def test_a_page_hears_that_a_message_is_over_also_where_too_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comm_messages, "QUEUE_MAX", 1)
    world = with_widget()
    ask(world)
    move(world)
    assert world.seen(move(world)) == ["busy", "idle"]


def test_a_kernel_with_a_figure_on_a_page_stays() -> None:
    world = with_widget()
    state = {"_model_module": "jupyter-matplotlib"}
    world.output(
        "r1", "comm_open", "", {"comm_id": "f", "target_name": "jupyter.widget", "data": {"state": state}}
    )
    assert "Figures" in world.answer(ask(world))["evalue"]


def test_a_figure_is_remembered_however_many_widgets_are_opened() -> None:
    comms = Comms()
    drawn = json.dumps({"comm_id": "f", "target_name": "figure"}).encode()
    comms.saw("comm_open", drawn, ReplicaId("r1"))
    for number in range(COMMS_MAX + 1):
        comms.saw(
            "comm_open", b'{"comm_id": "%d", "target_name": "jupyter.widget"}' % number, ReplicaId("r1")
        )
    comms.check_invariants()
    assert comms.held_by(ReplicaId("r1"))
    assert "0" not in comms.info(None)


def test_a_rest_waits_until_what_a_page_has_changed_is_durable() -> None:
    world = with_widget()
    move(world)
    last = move(world)
    ask(world)
    assert wishes(world) == []
    saved(world, "r1", last, 1, audit=1)
    assert wishes(world) == [], "it is proposed, and not in the log yet"
    world.commit("r1", 1, audit=1)
    assert wishes(world) == ["checkpoint"]


def test_who_copies_the_notebook_is_told_that_the_copy_lacks_what_a_page_has_just_changed() -> None:
    world = with_widget()
    moved = move(world)
    copied = world.request("replkernel_save_request", channel="control")
    assert world.answer(copied)["busy"]
    saved(world, "r1", moved, 1)
    world.request("replkernel_save_request", channel="control")
    assert wishes(world) == ["checkpoint"]


def test_news_of_an_older_message_let_nothing_go() -> None:
    world = with_widget()
    first = move(world)
    move(world)
    ask(world)
    saved(world, "r1", first, 1)
    assert wishes(world) == []


def test_an_older_change_that_is_durable_lets_nothing_go() -> None:
    world = with_widget()
    first = move(world)
    saved(world, "r1", first, 1, audit=1)
    move(world)
    ask(world)
    world.commit("r1", 1, audit=1)
    assert wishes(world) == []


def test_a_rest_that_waits_for_a_widget_in_vain_is_refused() -> None:
    world = with_widget()
    move(world)
    wish = ask(world)
    world.wait(COMMIT_LIMIT_S + 1)
    assert "not durable yet" in world.answer(wish)["evalue"]
    assert world.sent_to(move(world)) == ["r1"]


def test_a_page_that_never_falls_silent_has_no_rest_wait_for_longer() -> None:
    world = with_widget()
    move(world)
    wish = ask(world)
    world.wait(COMMIT_LIMIT_S / 2)
    move(world)
    world.wait(COMMIT_LIMIT_S / 2 + 1)
    assert "not durable yet" in world.answer(wish)["evalue"]


def test_how_long_a_rest_waits_counts_from_the_last_message_that_is_not_durable() -> None:
    world = with_widget()
    first = move(world)
    saved(world, "r1", first, 1, audit=1)
    world.commit("r1", 1, audit=1)
    world.wait(3600)
    second = move(world)
    world.wait(0.1)
    ask(world)
    assert wishes(world) == []
    saved(world, "r1", second, 1, audit=2)
    world.commit("r1", 1, audit=2)
    assert wishes(world) == ["checkpoint"]


def test_a_message_that_comes_while_the_state_is_saved_waits_and_wakes_the_kernel() -> None:
    world = with_widget()
    ask(world)
    late = move(world)
    rested(world, 1)
    assert world.sent_to(late) == []
    woken(world, 1)
    assert world.sent_to(late) == ["r1"]


def test_a_message_that_waited_for_a_rest_which_is_called_off_passes() -> None:
    world = with_widget()
    ask(world)
    late = move(world)
    world.say(CheckpointWritten(K, why="`line` cannot be kept."))
    assert world.sent_to(late) == ["r1"]


@pytest.mark.parametrize("last", ["comm_msg", "comm_close"])
def test_a_pages_change_after_a_rest_is_an_execution_and_the_next_rest_waits_for_it(last: str) -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    first, second = move(world), move(world, kind=last)
    woken(world, 1)
    assert world.sent_to(first) == world.sent_to(second) == ["r1"]
    assert (world.envelope(first).seq, world.envelope(first).needs) == (2, 1)
    assert world.envelope(second).seq == 0, "its process has the notebook"
    before = wishes(world)
    ask(world)
    saved(world, "r1", second, 2)
    assert wishes(world) == before
    world.commit("r1", 2)
    assert wishes(world) == [*before, "checkpoint"]
    assert [e.message.seq for e in world.of(events.ToAgent) if isinstance(e.message, HibernateKernel)] == [2]


def test_the_number_of_what_a_page_had_done_is_kept_for_the_next_router_before_it_is_given() -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    moved = move(world)
    woken(world, 1)
    kept = [e for e in world.all if isinstance(e, events.PageGiven | events.ToReplica)]
    at = next(i for i, e in enumerate(kept) if isinstance(e, events.PageGiven))
    (given_as,) = world.of(events.PageGiven, world.all)
    assert (given_as.replica, given_as.seq) == ("r1", world.envelope(moved).seq)
    sent = kept[at + 1]
    assert isinstance(sent, events.ToReplica)
    assert world.header_frame(moved) in sent.frames


@pytest.mark.parametrize("lives", [True, False])
def test_a_router_that_takes_over_gives_no_number_twice_and_knows_who_has_the_notebook(lives: bool) -> None:
    world = World()
    world.feed(events.PageGiven(ReplicaId("r1"), "ipc://r1-0.0-s" if lives else "gone", Seq(7), Fence(9)))
    world.up(applied=6)
    moved = move(world)
    if not lives:
        assert (world.envelope(moved).seq, world.envelope(moved).fence) == (8, 10)
    cell = world.execute()
    assert world.envelope(cell).seq == (8 if lives else 9)


def test_a_message_with_which_the_notebook_was_not_taken_over_holds_up_nothing_and_the_next_tries() -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    first = move(world)
    woken(world, 1)
    second = move(world)
    for refused in (first, second):
        said = {"msg_id": refused, "seq": 2, "ran": False}
        world.output("r1", SAVED_TYPE, refused, said, "stdin")
    before = wishes(world)
    third = move(world)
    assert (world.envelope(third).seq, world.envelope(third).needs) == (3, 1)
    world.output("r1", SAVED_TYPE, third, {"msg_id": third, "seq": 3, "ran": False}, "stdin")
    ask(world)
    assert wishes(world) == [*before, "checkpoint"]


def test_a_comm_of_the_page_is_opened_in_the_process_that_has_the_notebook_and_a_rest_waits_for_it() -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    own = {"comm_id": "own", "target_name": "panel"}
    opened = world.request("comm_open", own)
    woken(world, 1)
    said = world.request("comm_msg", own)
    closed = world.request("comm_close", own)
    assert (world.envelope(opened).seq, world.envelope(said).seq) == (2, 0)
    before = wishes(world)
    ask(world)
    assert wishes(world) == before
    saved(world, "r1", closed, 2)
    world.commit("r1", 2)
    assert wishes(world) == [*before, "checkpoint"]


@pytest.mark.parametrize("last", ["figure", "page"])
def test_a_rest_waits_for_widgets_also_where_something_else_was_said_last(last: str) -> None:
    world = with_widget()
    opened = {"comm_id": "f", "target_name": "figure"} if last == "figure" else CONTROL
    world.request("comm_open", opened)
    move(world)
    closed = world.request("comm_close", opened)
    ask(world)
    assert wishes(world) == []
    saved(world, "r1", closed, 1, audit=1)
    world.commit("r1", 1, audit=1)
    assert wishes(world) == ["checkpoint"], "the process tells of the last message alone"


def test_a_page_that_is_opened_takes_nothing_over() -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    opened = world.request("comm_open", CONTROL)
    woken(world, 1)
    asked = world.request("comm_msg", CONTROL)
    assert world.envelope(opened).seq == world.envelope(asked).seq == 0
    before = wishes(world)
    ask(world)
    assert wishes(world) == [*before, "checkpoint"]


def test_a_cell_behind_a_page_s_message_comes_behind_it_also_after_a_rest() -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    moved, cell = move(world), world.execute()
    woken(world, 1)
    sent = [e for e in world.of(events.ToReplica, world.all) if e.channel != "control"]
    order = [world.header_frame(one) for one in (moved, cell)]
    assert [frame for e in sent for frame in order if frame in e.frames] == order
    assert world.envelope(cell).seq == 3


def given(world: World, *msg_ids: str) -> list[str]:
    """Return which of these messages were given to a process, in order."""
    frames = {world.header_frame(msg_id): msg_id for msg_id in msg_ids}
    sent = [e for e in world.of(events.ToReplica, world.all) if e.channel != "control"]
    return [frames[frame] for e in sent for frame in e.frames if frame in frames]


@pytest.mark.parametrize("lost", [False, True])
def test_a_pages_message_during_a_cell_overtakes_none_before_it(lost: bool) -> None:
    world = with_widget()
    if lost:
        world.lose("r1")
    else:
        ask(world)
        rested(world, 1)
    cell, first, second = world.execute(), move(world), move(world)
    if lost:
        world.wait(5)
    else:
        woken(world, 1)
    (target,) = world.sent_to(cell)
    third = move(world)
    world.begin(target, cell, 2)
    fourth = move(world)
    order = [cell, first, second, third, fourth]
    assert given(world, *order) == order, "and none waits for the cell's end"
    world.finish(target, cell, count=2)
    assert given(world, *order) == order


def test_a_pages_message_waits_for_nobodys_gpus() -> None:
    world = with_widget()
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    world.lose("r1")
    cell, behind, first, second = world.needs(1), world.execute(), move(world), move(world)
    world.wait(5)
    assert given(world, cell, behind, first, second) == [first, second]
    assert (world.envelope(first).seq, world.envelope(second).seq) == (2, 0)
    third = move(world)
    assert world.sent_to(third) == world.sent_to(first)
    world.grant(f"k:{cell}")
    assert world.envelope(cell).seq == 3


def test_cells_move_with_widgets_on_a_page_and_its_messages_follow() -> None:
    world = with_widget("rotate")
    first = world.execute()
    assert world.sent_to(first) == ["r2"]
    world.begin("r2", first)
    world.finish("r2", first)
    moved = move(world)
    assert world.sent_to(moved) == ["r2"]
    world.commit("r2", 2)
    cell = world.execute()
    assert world.sent_to(cell) == [], "what the page has changed is in that process alone"
    saved(world, "r2", moved, 2, audit=1)
    world.commit("r2", 2, audit=1)
    assert world.sent_to(cell) == ["r3"]
    assert world.envelope(cell).needs_audit == 1


def subshell(world: World, name: str = "r1") -> str:
    """Return the subshell that a page has a process make."""
    made = world.request("create_subshell_request", channel="control")
    world.output(name, "create_subshell_reply", made, {"status": "ok", "subshell_id": "x"}, "control")
    return "x"


@pytest.mark.parametrize("in_subshell", [False, True])
def test_a_page_that_never_falls_silent_keeps_no_cell_from_moving(in_subshell: bool) -> None:
    world = with_widget("rotate")
    where = subshell(world) if in_subshell else None
    first = move(world, where)
    cell = world.execute()
    assert world.sent_to(cell) == []
    second = move(world, where)
    assert world.sent_to(second) == [], "it comes behind the cell"
    saved(world, "r1", first, 1, audit=1)
    world.commit("r1", 1, audit=1)
    assert world.sent_to(cell) == ["r2"]
    third = move(world, where)
    world.begin("r2", cell)
    assert given(world, cell, second, third) == [cell, second, third]


@pytest.mark.parametrize("kind", ["comm_open", "comm_msg"])
def test_a_pages_request_goes_to_no_subshell_of_a_process_that_lacks_the_notebook(kind: str) -> None:
    world = with_widget()
    ask(world)
    rested(world, 1)
    opened = world.request("comm_open", CONTROL)
    woken(world, 1)
    assert world.sent_to(opened) == ["r1"]
    asked = world.request(kind, CONTROL, subshell_id=subshell(world))
    assert world.envelope(asked).needs == 1, "what it asks for is rebuilt before it is answered"
    cell = world.execute()
    world.begin("r1", cell, 2)
    later = world.request("comm_msg", CONTROL, subshell_id="x")
    (sent,) = [e for e in world.of(events.ToReplica, world.all) if world.header_frame(later) in e.frames]
    assert len(sent.frames) == 1 + 6, "it has no envelope: the subshell takes it"


@pytest.mark.parametrize("runs_cells", [False, True])
def test_a_subshell_for_widgets_holds_nothing_unless_cells_run_in_it(runs_cells: bool) -> None:
    world = with_widget("rotate")
    subshell(world)
    if runs_cells:
        world.request("execute_request", {"code": "1"}, subshell_id="x")
    goes_to = "r1" if runs_cells else "r2"
    cell = world.execute()
    world.begin(goes_to, cell)
    assert world.sent_to(cell) == world.sent_to(move(world, "x")) == [goes_to]


def test_a_process_that_dies_takes_along_what_a_page_changed_in_it_alone() -> None:
    world = with_widget()
    moved = move(world)
    world.lose("r1")
    world.ready("r1", 1)
    ask(world)
    saved(world, "r1", moved, 1)
    assert wishes(world) == ["checkpoint"]


def unreached(world: World, *msg_ids: str) -> None:
    """Have these messages been sent to r1 when its process was dead already, which is heard of later."""
    for msg_id in msg_ids:
        world.feed(events.Undelivered(ReplicaId("r1"), msg_id))
    world.lose("r1")
    called = [e.message for e in world.of(events.ToAgent, world.all) if isinstance(e.message, ElectExecutor)]
    world.say(Elected(called[-1].seq, ReplicaId("r2")))


@pytest.mark.parametrize("in_subshell", [False, True])
def test_what_a_page_did_as_its_process_was_dead_is_done_in_the_next_in_its_order(in_subshell: bool) -> None:
    world = with_widget()
    where = subshell(world) if in_subshell else None
    first, second = move(world, where), move(world, where)
    unreached(world, first, second)
    assert world.sent_to(first) == world.sent_to(second) == ["r1", "r2"]
    assert given(world, first, second)[-2:] == [first, second]
    assert world.envelope(first).seq == 2, "it takes the notebook over"
    assert world.seen(first) == []
    world.status("r2", first, "busy")
    world.status("r2", first, "idle")
    assert world.seen(first) == ["busy", "idle"]


def test_a_page_and_a_cell_that_found_their_process_dead_keep_their_order() -> None:
    world = with_widget()
    before = move(world)
    cell = world.execute()
    behind = move(world)
    assert given(world, before, cell, behind) == [before, cell, behind]
    unreached(world, before, cell, behind)
    world.begin("r2", cell, 2)
    assert given(world, before, cell, behind)[3:] == [before, cell, behind]


def test_what_a_page_did_in_a_process_that_died_of_it_is_not_done_again() -> None:
    world = with_widget()
    moved, late = move(world), move(world)
    unreached(world, late)
    assert (world.sent_to(moved), world.seen(moved)) == (["r1"], ["busy", "idle"])
    assert world.sent_to(late) == ["r1", "r2"]


def test_a_comm_whose_opening_found_its_process_dead_is_opened_in_the_next_and_not_closed() -> None:
    world = with_widget()
    opened = world.request("comm_open", {"comm_id": "own", "target_name": "panel"})
    unreached(world, opened)
    assert world.sent_to(opened) == ["r1", "r2"]
    assert [e for e in world.of(events.Publish, world.all) if e.msg_type == "comm_close"] == []


def test_no_more_wait_again_than_may_wait_and_the_others_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm_messages, "QUEUE_MAX", 2)
    world = with_widget()
    moves = [move(world) for _ in range(3)]
    unreached(world, *moves)
    assert [world.sent_to(moved) for moved in moves] == [["r1", "r2"], ["r1", "r2"], ["r1"]]
    assert world.seen(moves[2]) == ["busy", "idle"]


def test_a_page_hears_once_that_what_it_did_is_over_also_when_the_process_dies_later() -> None:
    world = with_widget()
    moved = move(world)
    world.status("r1", moved, "busy")
    world.status("r1", moved, "idle")
    world.lose("r1")
    assert world.seen(moved) == ["busy", "idle"]
