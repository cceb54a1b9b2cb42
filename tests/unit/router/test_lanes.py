"""Executions take the direct way, and nothing that a client sent overtakes anything on the other one."""

from __future__ import annotations

from replkernel.protocol.agent_to_router import Elected
from replkernel.records import ReplicaId, Seq
from replkernel.router.core import events
from tests.support.router_world import World


def way(world: World, msg_id: str) -> str:
    """Return the last way that a request went to a replica."""
    frame = world.header_frame(msg_id)
    return [effect.channel for effect in world.of(events.ToReplica, world.all) if frame in effect.frames][-1]


def test_executions_go_directly() -> None:
    world = World().up()
    assert [way(world, world.run("r1")) for _ in range(3)] == ["executions"] * 3


def test_an_execution_does_not_overtake_a_message_before_it() -> None:
    world = World().up()
    comm = world.request("comm_msg", {"comm_id": "c"})
    assert way(world, comm) == "shell"
    assert way(world, world.run("r1")) == "shell"
    assert way(world, world.run("r1")) == "executions"


def test_a_message_that_has_been_dealt_with_delays_nothing() -> None:
    world = World().up()
    question = world.request("complete_request")
    world.status("r1", question, "busy")
    world.output("r1", "complete_reply", question, {"status": "ok"}, "shell")
    world.status("r1", question, "idle")
    assert way(world, world.run("r1")) == "executions"


def test_a_question_to_a_standby_is_not_before_the_executors_cell() -> None:
    world = World().up()
    long = world.execute()
    world.begin("r1", long)
    question = world.request("complete_request")
    world.wait(2)
    assert world.sent_to(question) == ["r2"]
    world.finish("r1", long)
    assert way(world, world.run("r1")) == "executions"


def test_a_comm_message_waits_until_the_cell_before_it_has_begun() -> None:
    world = World().up()
    cell = world.execute()
    first, second = (world.request("comm_msg", {"comm_id": name}) for name in "ab")
    assert world.sent_to(first) == world.sent_to(second) == []
    world.status("r1", cell, "busy")
    sent = [effect.frames for effect in world.of(events.ToReplica)]
    assert [world.header_frame(first) in sent[0], world.header_frame(second) in sent[1]] == [True, True]
    assert way(world, first) == way(world, second) == "shell"


def test_a_comm_message_that_waits_is_not_lost_with_the_process() -> None:
    world = World().up()
    world.execute()
    comm = world.request("comm_msg", {"comm_id": "c"})
    world.lose("r1")
    assert world.sent_to(comm) == []
    world.say(Elected(Seq(2), ReplicaId("r3")))
    assert world.sent_to(comm) == ["r3"]


def test_a_new_process_is_written_to_directly() -> None:
    world = World(replicas=1).up()
    world.request("comm_msg", {"comm_id": "c"})
    world.lose("r1")
    world.ready("r1")
    assert way(world, world.run("r1")) == "executions"
