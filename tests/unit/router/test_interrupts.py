"""Interrupts reach the cell that runs and no other, whatever its process does; the second word ends it."""

from __future__ import annotations

import json
from signal import SIGINT, SIGKILL

from replkernel.protocol.agent_to_router import AgentWelcome, InterruptSent, ReplicaReady
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.router_to_agent import InterruptReplica
from replkernel.records import HostName, KernelId, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.interrupts import DELIVERY_LIMIT_S, NOTICE_S, READING_S
from tests.support.router_world import HOST, World

FAR = HostName("far")
R1 = ReplicaId("r1")


def interrupt(world: World) -> str:
    return world.request("interrupt_request", channel="control")


def signals(world: World) -> list[tuple[str, int]]:
    return [(effect.replica, effect.number) for effect in world.of(events.SignalProcess)]


def said(effects: list[events.Effect]) -> str:
    streams = [one for one in effects if isinstance(one, events.Publish) and one.msg_type == "stream"]
    return "".join(json.loads(stream.content)["text"] for stream in streams)


def far_world() -> World:
    """Return a router whose only replica runs on another machine."""
    world = World(replicas=1, hosts=(FAR,))
    world.feed(events.AgentFound(FAR, "token", far=True))
    world.say(AgentWelcome(FAR, 2), FAR)
    ends = Endpoints(*(f"ipc://{number}" for number in range(5)), far=Endpoints(*("tcp://x:1",) * 5))
    world.say(ReplicaReady(R1, FAR, 9, ends, Seq(0), b"{}"), FAR)
    world.output("r1", "iopub_welcome", "", {})
    return world


def ended_world() -> tuple[World, str]:
    """Return a router, and its cell that was interrupted once more after its user was told."""
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    interrupt(world)
    world.wait(NOTICE_S + READING_S)
    interrupt(world)
    return world, cell


def test_an_interrupt_is_a_signal_and_asks_nothing_of_the_process() -> None:
    world = World().up()
    cell = world.execute()
    asked = interrupt(world)
    assert signals(world) == [("r1", SIGINT)]
    assert world.seen(asked) == ["busy", "interrupt_reply:ok", "idle"]
    assert world.sent_to(cell) == ["r1"]


def test_sigint_reaches_the_running_cell_and_is_ignored_at_rest() -> None:
    world = World().up()
    world.feed(events.InterruptSignal())
    assert world.last == []
    world.execute()
    world.feed(events.InterruptSignal())
    assert signals(world) == [("r1", SIGINT)]


def test_an_interrupt_that_names_a_cell_interrupts_no_other() -> None:
    world = World().up()
    cell = world.execute()
    asked = world.request("interrupt_request", {"msg_id": "one that is over"}, channel="control")
    assert signals(world) == []
    assert world.seen(asked) == ["busy", "interrupt_reply:ok", "idle"]
    world.request("interrupt_request", {"msg_id": cell}, channel="control")
    assert signals(world) == [("r1", SIGINT)]


def test_a_cell_that_goes_on_is_told_once_what_another_interrupt_does() -> None:
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    interrupt(world)
    assert said(world.wait(NOTICE_S - 0.1)) == ""
    assert "Interrupt it again to end its process" in said(world.wait(0.2))
    assert said(world.wait(60)) == ""


def test_the_interrupt_after_that_ends_the_process_and_the_cell_says_why() -> None:
    world, cell = ended_world()
    assert signals(world) == [("r1", SIGKILL)]
    world.lose("r1")
    assert world.answer(cell)["ename"] == "ExecutorLost"
    assert "did not end when it was interrupted; the notebook is back at" in world.answer(cell)["evalue"]
    following = world.execute()
    world.wait(10)
    assert world.sent_to(following) == ["r2"]


def test_impatience_ends_nothing() -> None:
    world = World().up()
    world.begin("r1", world.execute())
    for _ in range(40):
        interrupt(world)
        assert signals(world) == [("r1", SIGINT)]
        world.wait((NOTICE_S + READING_S) / 50)
    world.wait(NOTICE_S + READING_S / 2 - world.now)
    interrupt(world)
    assert signals(world) == [("r1", SIGINT)]


def test_an_interrupt_of_one_cell_does_not_count_for_the_next() -> None:
    world = World().up()
    first = world.execute()
    world.begin("r1", first)
    interrupt(world)
    world.wait(NOTICE_S + READING_S)
    world.finish("r1", first)
    world.begin("r1", world.execute())
    interrupt(world)
    assert signals(world) == [("r1", SIGINT)]


def test_a_process_lost_later_is_not_taken_for_one_that_was_ended() -> None:
    world, _ = ended_world()
    world.lose("r1")
    world.up("r1")
    other = world.execute()
    world.wait(10)
    (runner,) = world.sent_to(other)
    world.begin(runner, other)
    world.lose(runner, "killed by SIGSEGV")
    assert "SIGSEGV" in world.answer(other)["evalue"]


def test_on_another_machine_its_agent_delivers_it_for_that_execution() -> None:
    world = far_world()
    world.execute()
    interrupt(world)
    (effect,) = world.of(events.ToAgent)
    assert effect == events.ToAgent(FAR, InterruptReplica(KernelId("k"), R1, Seq(1)))


def test_the_next_cell_waits_for_an_interrupt_that_is_on_its_way() -> None:
    world = far_world()
    first = world.execute()
    world.begin("r1", first)
    interrupt(world)
    world.finish("r1", first)
    following = world.execute()
    assert world.sent_to(following) == []
    world.say(InterruptSent(R1), FAR)
    assert world.sent_to(following) == ["r1"]


def test_the_next_cell_waits_for_no_agent_that_is_silent() -> None:
    world = far_world()
    first = world.execute()
    world.begin("r1", first)
    interrupt(world)
    world.finish("r1", first)
    following = world.execute()
    world.wait(DELIVERY_LIMIT_S)
    assert world.sent_to(following) == ["r1"]


def test_a_kernel_without_replicas_answers_interrupts() -> None:
    world = World()
    assert world.seen(interrupt(world)) == ["busy", "interrupt_reply:ok", "idle"]
    assert HOST in world.hosts


def test_the_cell_after_an_interrupt_between_cells_is_told_that_none_was_for_it() -> None:
    world = World().up()
    world.run("r1")
    interrupt(world)
    assert signals(world) == [("r1", SIGINT)]
    first, second = world.run("r1"), world.run("r1")
    assert [world.envelope(cell).interrupts for cell in (first, second)] == [False, True]
