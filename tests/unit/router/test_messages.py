"""Everything that is no execution: questions, comms, control, subshells, input, what is published."""

from __future__ import annotations

import json

import pytest

from replkernel.protocol.agent_to_router import AgentWelcome, Elected, KernelEnded, ReplicaReady
from replkernel.protocol.envelope import ENVELOPE_MARK, EXPECT_QUESTIONS, read_envelope
from replkernel.protocol.router_to_agent import ElectExecutor, EndKernel, RouterHello
from replkernel.records import KernelId, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.control import WAITING_MAX
from replkernel.router.core.queue import QUEUE_MAX
from tests.support.router_world import HOST, World

QUESTIONS = ["complete_request", "inspect_request", "history_request", "is_complete_request"]


def test_the_kernel_says_starting_once_whatever_its_replicas_say() -> None:
    world = World().up()
    for name in ("r1", "r2", "r3"):
        world.status(name, "", "starting")
    published = [effect.content for effect in world.of(events.Publish, world.all)]
    assert published == [b'{"execution_state":"starting"}']
    assert world.of(events.PassToIopub, world.all) == []


def test_each_subscription_is_welcomed_on_its_own_topic() -> None:
    world = World()
    (welcome,) = world.feed(events.Subscribed(b"kernel.x"))
    assert isinstance(welcome, events.Publish)
    assert (welcome.msg_type, welcome.topic, welcome.parent) == ("iopub_welcome", b"kernel.x", b"{}")
    assert json.loads(welcome.content) == {"subscription": "kernel.x"}


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_kernel_info_is_answered_before_any_replica_is_ready(channel: events.Channel) -> None:
    world = World()
    world.execute()
    request = world.request("kernel_info_request", channel=channel)
    assert world.seen(request) == ["busy", "kernel_info_reply", "idle"]
    assert world.answer(request)["banner"] == "own"


def test_kernel_info_is_the_replicas_own_once_known() -> None:
    world = World().up()
    assert world.answer(world.request("kernel_info_request")) == {"status": "ok", "banner": "replica"}


def test_kernel_info_on_control_is_answered_by_the_router_when_the_process_is_stuck() -> None:
    world = World().up()
    request = world.request("kernel_info_request", channel="control")
    assert world.sent_to(request) == ["r1"]
    world.wait(1.1)
    assert world.seen(request) == ["busy", "kernel_info_reply:ok", "idle"]
    world.output("r1", "kernel_info_reply", request, {"status": "ok"}, "control")
    world.status("r1", request, "busy")
    assert world.seen(request) == ["busy", "kernel_info_reply:ok", "idle"]


def test_connect_request_tells_the_routers_ports() -> None:
    assert World().up().router is not None
    world = World()
    assert world.answer(world.request("connect_request"))["shell_port"] == 5


@pytest.mark.parametrize("kind", QUESTIONS)
def test_questions_go_to_the_executor_while_it_is_free(kind: str) -> None:
    world = World().up()
    world.run("r1")
    assert world.sent_to(world.request(kind)) == ["r1"]


@pytest.mark.parametrize("kind", QUESTIONS)
def test_questions_do_not_wait_for_a_long_cell(kind: str) -> None:
    world = World().up()
    world.execute()
    world.wait(5)
    assert world.sent_to(world.request(kind)) == ["r2"]


def test_questions_keep_their_turn_behind_a_short_cell() -> None:
    world = World().up()
    cell = world.execute()
    question, info = world.request("inspect_request"), world.request("kernel_info_request")
    assert world.sent_to(question) == [] == world.seen(info)
    world.wait(0.2)
    world.finish("r1", cell)
    assert world.sent_to(question) == ["r1"]
    assert world.seen(info) == ["busy", "kernel_info_reply:ok", "idle"]


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_says_which_state_its_answer_is_to_see(kind: str) -> None:
    world = World().up()
    first = world.request(kind)
    world.run("r1")
    world.commit("r1", 1, audit=2)
    question = world.request(kind)
    sent = {
        frames[-4]: frames for frames in (effect.frames for effect in world.of(events.ToReplica, world.all))
    }
    assert read_envelope(sent[world.header_frame(first)]) is None
    look = read_envelope(sent[world.header_frame(question)])
    assert (look is None) == (kind == "is_complete_request")
    assert look is None or (look.needs, look.needs_audit) == (1, 2)
    assert not sent[world.header_frame(question)][0].startswith(ENVELOPE_MARK)


def test_a_question_is_asked_elsewhere_when_its_turn_does_not_come() -> None:
    world = World().up()
    world.execute()
    question = world.request("complete_request")
    world.wait(0.35)
    assert world.sent_to(question) == ["r2"]


def test_after_a_question_that_is_answered_meanwhile_the_cell_says_that_it_still_runs() -> None:
    world = World().up()
    cell = world.execute()
    world.status("r1", cell, "busy")
    question = world.request("complete_request")
    world.wait(1.1)
    world.status("r2", question, "busy")
    world.output("r2", "complete_reply", question, {"status": "ok"}, "shell")
    world.status("r2", question, "idle")
    assert world.seen(question) == ["busy", "complete_reply:ok", "idle"]
    assert world.seen(cell) == ["busy", "busy"]
    world.request("comm_info_request")
    world.wait(1.1)
    assert world.seen(cell) == ["busy", "busy", "busy"]
    world.finish("r1", cell)
    assert world.seen(cell)[-1] == "idle"
    later = world.request("complete_request")
    world.status("r1", later, "busy")
    world.status("r1", later, "idle")
    assert world.seen(cell)[-1] == "idle"


def test_a_question_waits_when_only_the_busy_executor_could_answer() -> None:
    world = World(replicas=1).up()
    cell = world.execute()
    question = world.request("complete_request")
    world.wait(30)
    assert world.sent_to(question) == []
    world.finish("r1", cell)
    assert world.sent_to(question) == ["r1"]


def test_a_question_left_by_a_lost_standby_is_answered_by_another() -> None:
    world = World().up()
    world.execute()
    world.wait(2)
    question = world.request("complete_request")
    world.status("r2", question, "busy")
    world.lose("r2")
    assert world.sent_to(question) == ["r2", "r3"]
    world.status("r3", question, "busy")
    world.output("r3", "complete_reply", question, {"status": "ok"}, "shell")
    world.status("r3", question, "idle")
    assert world.seen(question) == ["busy", "complete_reply:ok", "idle"]


def test_a_question_that_all_replicas_left_is_answered_by_the_first_that_returns() -> None:
    world = World(replicas=2).up()
    question = world.request("complete_request")
    world.status("r1", question, "busy")
    world.lose("r1")
    world.lose("r2")
    assert world.seen(question) == ["busy"]
    world.ready("r2")
    assert world.sent_to(question) == ["r1", "r2", "r2"]
    world.status("r2", question, "busy")
    world.output("r2", "complete_reply", question, {"status": "ok"}, "shell")
    world.status("r2", question, "idle")
    assert world.seen(question) == ["busy", "complete_reply:ok", "idle"]


def test_other_shell_messages_keep_their_turn() -> None:
    world = World().up()
    cell = world.execute()
    custom = world.request("custom_request")
    assert world.sent_to(custom) == []
    world.finish("r1", cell)
    assert world.sent_to(custom) == ["r1"]


def test_comm_messages_reach_the_running_cell_that_waits_for_them() -> None:
    world = World().up()
    cell = world.execute()
    world.output("r1", "comm_open", cell, {"comm_id": "c", "target_name": "t"})
    assert world.sent_to(world.request("comm_msg", {"comm_id": "c"})) == ["r1"]


def test_comm_info_is_answered_by_the_router_while_a_long_cell_runs() -> None:
    world = World().up()
    cell = world.execute()
    world.output("r1", "comm_open", cell, {"comm_id": "c", "target_name": "t"})
    world.wait(2)
    request = world.request("comm_info_request", {"target_name": "t"})
    assert world.answer(request)["comms"] == {"c": {"target_name": "t"}}
    assert world.answer(world.request("comm_info_request", {"target_name": "u"}))["comms"] == {}
    world.finish("r1", cell)
    assert world.sent_to(world.request("comm_info_request")) == ["r1"]


def test_front_ends_hear_that_the_comms_of_a_lost_process_are_closed() -> None:
    world = World().up()
    world.run("r1")
    world.output("r1", "comm_open", "", {"comm_id": "c", "target_name": "t"})
    world.request("comm_open", {"comm_id": "d", "target_name": "t"})
    world.lose("r1")
    closed = [
        json.loads(effect.content)["comm_id"]
        for effect in world.of(events.Publish)
        if effect.msg_type == "comm_close"
    ]
    assert sorted(closed) == ["c", "d"]


def _with_a_widget() -> World:
    """Return a kernel whose first cell has made a widget and is durable."""
    world = World().up()
    world.run("r1")
    world.commit("r1", 1)
    world.output("r1", "comm_open", "", {"comm_id": "w", "target_name": "jupyter.widget"})
    return world


def test_the_comms_of_widgets_stay_open_when_their_process_is_lost() -> None:
    world = _with_a_widget()
    world.lose("r1")
    assert [e for e in world.of(events.Publish) if e.msg_type == "comm_close"] == []
    cell = world.execute()
    world.wait(5)
    assert world.sent_to(cell) == ["r2"]
    world.wait(2)
    info = world.request("comm_info_request", {"target_name": "jupyter.widget"})
    assert world.answer(info)["comms"] == {"w": {"target_name": "jupyter.widget"}}


def test_who_moves_a_widget_after_a_loss_has_an_executor_elected() -> None:
    world = _with_a_widget()
    world.lose("r1")
    first, second = (world.request("comm_msg", {"comm_id": "w"}) for _ in range(2))
    (call,) = world.of(events.ToAgent, world.all)[-1:]
    assert isinstance(call.message, ElectExecutor)
    assert world.sent_to(first) == world.sent_to(second) == []
    world.say(Elected(Seq(2), ReplicaId("r3")))
    assert world.sent_to(first) == world.sent_to(second) == ["r3"]
    assert world.envelope(first).needs == 1
    cell = world.execute()
    assert world.sent_to(cell) == ["r3"]
    assert world.envelope(cell).afresh is not None


def test_an_election_for_a_widget_that_nobody_answers_is_over_after_a_while() -> None:
    world = _with_a_widget()
    world.lose("r1")
    moved = world.request("comm_msg", {"comm_id": "w"})
    world.wait(10)
    assert len(world.sent_to(moved)) == 1


def test_a_widget_holds_the_process_that_speaks_of_it_next() -> None:
    world = _with_a_widget()
    world.lose("r1")
    cell = world.execute()
    world.wait(5)
    assert world.sent_to(cell) == ["r2"]
    world.output("r2", "comm_msg", cell, {"comm_id": "w"})
    world.ready("r1", 1)
    assert world.sent_to(world.request("comm_msg", {"comm_id": "w"})) == ["r2"]
    world.output("r2", "comm_close", cell, {"comm_id": "w"})
    world.lose("r2")
    assert [e for e in world.of(events.Publish) if e.msg_type == "comm_close"] == []


def test_a_standby_is_heard_only_about_what_it_was_asked() -> None:
    world = World().up()
    cell = world.execute()
    world.output("r2", "stream", cell, {"text": "not mine"})
    world.output("r2", "stream", "", {"text": "rebuilding"})
    world.output("r2", "stream", "unknown", {"text": "older"})
    assert world.of(events.PassToIopub, world.all) == []
    world.output("r1", "stream", "", {"text": "a thread of the executor"})
    world.output("r1", "stream", "unknown", {"text": "an older cell"})
    assert len(world.of(events.PassToIopub, world.all)) == 2


def test_subshell_messages_pass_by_a_running_cell() -> None:
    world = World().up()
    world.execute()
    request = world.request("execute_request", {"code": "1"}, subshell_id="x")
    assert world.sent_to(request) == ["r1"]


def test_a_subshell_cell_of_a_lost_process_ends_with_an_error() -> None:
    world = World().up()
    world.run("r1")
    request = world.request("execute_request", {"code": "1"}, subshell_id="x")
    world.lose("r1")
    assert world.answer(request)["ename"] == "ExecutorLost"
    assert world.seen(request) == ["busy", "execute_reply:error", "idle"]


def test_a_comm_goes_on_in_the_main_shell_once_its_subshell_ended_with_its_process() -> None:
    world = _with_a_widget()
    made = world.request("create_subshell_request", channel="control")
    world.output("r1", "create_subshell_reply", made, {"status": "ok", "subshell_id": "x"}, "control")
    cell = world.execute()
    passed_by = world.request("comm_msg", {"comm_id": "w"}, subshell_id="x")
    assert world.sent_to(cell) == world.sent_to(passed_by) == ["r1"]
    world.lose("r1")
    moved = world.request("comm_msg", {"comm_id": "w"}, subshell_id="x")
    assert world.sent_to(moved) == [], "somebody must have the notebook first"
    world.say(Elected(Seq(3), ReplicaId("r3")))
    assert world.sent_to(moved) == ["r3"]


def test_control_messages_wait_for_a_first_replica() -> None:
    world = World()
    request = world.request("usage_request", channel="control")
    assert world.seen(request) == []
    world.up()
    assert world.sent_to(request) == ["r1"]


def test_control_never_waits_for_a_cell() -> None:
    world = World().up()
    world.execute()
    assert world.sent_to(world.request("usage_request", channel="control")) == ["r1"]


def test_input_goes_back_to_the_process_that_asked() -> None:
    world = World().up()
    cell = world.execute()
    world.output("r1", "input_request", cell, {"prompt": "?"}, "stdin")
    (asked,) = world.of(events.PassToClient)
    assert asked.channel == "stdin"
    reply = world.request("input_reply", {"value": "1"}, channel="stdin")
    assert world.sent_to(reply) == ["r1"]


def test_queues_are_bounded() -> None:
    world = World()
    world.checks = False
    for _ in range(WAITING_MAX + 1):
        last = world.request("usage_request", channel="control")
    assert world.answer(last)["status"] == "error"
    for _ in range(QUEUE_MAX + 1):
        last = world.execute()
    assert "interrupt it" in world.answer(last)["evalue"]
    world.router.check_invariants()


@pytest.mark.parametrize("restart", [True, False])
def test_shutdown_ends_every_host_before_it_is_answered(*, restart: bool) -> None:
    world = World().up()
    request = world.request("shutdown_request", {"restart": restart}, channel="control")
    (told,) = world.of(events.ToAgent)
    assert isinstance(told.message, EndKernel)
    assert world.seen(request) == ["busy"]
    world.say(KernelEnded(KernelId("k")))
    assert world.seen(request) == ["busy", "shutdown_reply:ok", "shutdown_reply:ok", "idle"]
    assert world.answer(request) == {"status": "ok", "restart": restart}
    assert world.of(events.Exit) == [events.Exit(0)]


def test_a_kernel_that_its_agent_ends_is_over() -> None:
    world = World().up()
    world.say(KernelEnded(KernelId("k")))
    assert world.of(events.Exit) == [events.Exit(0)]


def test_the_late_end_of_a_kernel_before_this_one_is_nothing_to_a_new_router() -> None:
    world = World()
    world.say(KernelEnded(KernelId("k")))
    assert world.of(events.Exit) == []


def test_shutdown_does_not_wait_for_a_silent_host_for_ever() -> None:
    world = World().up()
    world.request("shutdown_request", {"restart": False}, channel="control")
    world.wait(5.1)
    assert world.of(events.Exit) == [events.Exit(0)]


def test_an_end_that_is_asked_for_again_does_not_wait_any_longer() -> None:
    world = World().up()
    world.feed(events.EndSignal("SIGTERM"))
    assert world.of(events.Exit) == []
    world.feed(events.EndSignal("SIGTERM"))
    assert world.of(events.Exit) == [events.Exit(0)]


def test_an_agent_that_restarts_is_greeted_again_and_its_processes_are_kept() -> None:
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    world.feed(events.AgentGone(HOST))
    assert world.of(events.FindAgent) == [events.FindAgent(HOST)]
    world.feed(events.AgentFound(HOST, "new token"))
    (hello,) = world.of(events.ToAgent)
    assert isinstance(hello.message, RouterHello)
    assert hello.message.token == "new token"
    world.say(AgentWelcome(HOST, 3, incarnation="one", replicas=(ReplicaId("r1"),)))
    endpoints = world.fleet.replicas[ReplicaId("r1")].endpoints
    assert endpoints is not None
    world.say(ReplicaReady(ReplicaId("r1"), HOST, 9, endpoints, Seq(0)))
    assert world.of(events.ConnectReplica) == []
    world.finish("r1", cell)
    assert world.seen(cell)[-1] == "idle"


def test_an_agent_of_another_release_is_refused_by_name() -> None:
    world = World()
    world.feed(events.AgentFound(HOST, "token"))
    world.say(AgentWelcome(HOST, 3, version=99))
    assert "protocol version 99" in world.answer(world.execute())["evalue"]


def _expecting(effects: list[events.Effect]) -> list[str]:
    return [
        effect.replica
        for effect in effects
        if isinstance(effect, events.ToReplica) and list(effect.frames) == [EXPECT_QUESTIONS]
    ]


def test_one_standby_is_told_to_expect_questions_once_a_cell_turns_out_to_be_long() -> None:
    world = World().up()
    world.begin("r1", world.execute())
    assert _expecting(world.wait(0.9)) == []
    assert _expecting(world.wait(0.2)) == ["r2"]
    assert _expecting(world.wait(60.0)) == []
    question = world.request("complete_request")
    assert world.sent_to(question) == ["r2"]


def test_another_standby_is_told_when_the_first_is_lost_and_nobody_when_there_is_none() -> None:
    world = World().up()
    world.begin("r1", world.execute())
    assert _expecting(world.wait(2.1)) == ["r2"]
    world.lose("r2")
    assert _expecting(world.all) == ["r2", "r3"]
    alone = World().up("r1")
    alone.begin("r1", alone.execute())
    assert _expecting(alone.wait(5.0)) == []
