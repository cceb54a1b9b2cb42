"""Where a variable could not be rebuilt: the notebook stays with whoever has it, and no cell runs twice."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from replkernel.protocol.agent_to_router import ReplicaUnfaithful
from replkernel.protocol.envelope import ENVELOPE_MARK, read_envelope
from replkernel.records import Pin, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.doubts import Doubts
from replkernel.router.core.placement import Placement
from tests.support.router_world import World


def pin(name: str = "x", holder: str = "r1", seq: int = 1) -> Pin:
    """Return the pin of an unfaithful variable."""
    return Pin(name, "Drops", ReplicaId(holder), Seq(seq), "", "x.b differs.")


READY = [ReplicaId(name) for name in ("r1", "r2", "r3")]


def test_a_variable_is_told_of_once_whoever_doubts_it() -> None:
    doubts = Doubts()
    assert "`x` (Drops, cell 1)" in doubts.take(ReplicaId("r2"), (pin(),))
    assert doubts.take(ReplicaId("r3"), (pin(),)) == ""
    assert "`y`" in doubts.take(ReplicaId("r3"), (pin(), pin("y")))
    assert doubts.holders(READY) == ["r1", "r1", "r1"]


def test_who_doubts_its_own_variable_holds_nobody() -> None:
    doubts = Doubts()
    doubts.take(ReplicaId("r2"), (pin(),))
    said = doubts.take(ReplicaId("r1"), (pin(), pin("y")))
    assert "they are lost" in said
    assert doubts.holders(READY) == []


def test_a_process_that_is_gone_holds_nobody_and_nobody_is_told_that_it_does() -> None:
    doubts = Doubts({ReplicaId("r1"): Seq(4)})
    assert "they are lost, for r1 was started anew" in doubts.take(ReplicaId("r2"), (pin(seq=4),))
    assert doubts.holders(READY) == []
    assert "stays on r1" in doubts.take(ReplicaId("r2"), (pin(seq=5),))
    assert doubts.holders(READY) == ["r1"]


def test_a_holder_that_is_not_ready_binds_nobody() -> None:
    doubts = Doubts()
    doubts.take(ReplicaId("r2"), (pin(),))
    assert doubts.holders(READY[1:]) == []
    assert doubts.holders(READY) == ["r1"]


def test_a_loss_that_no_variable_tells_of_is_told_when_its_process_is_gone() -> None:
    placement = Placement("sticky", random.Random(1))
    thread = Pin("thread T", "threading.Thread", ReplicaId("r1"), Seq(3), "", "It runs.", 2)
    placement.pinned((thread, pin("x")))
    assert placement.lost(ReplicaId("r2"), Seq(3)) == ""
    assert placement.lost(ReplicaId("r1"), Seq(3)) == (
        "With the process of replica r1 went what lived in it alone: thread T (cell 2): It runs. "
        "Run the cells that made it again."
    )
    assert placement.lost(ReplicaId("r1"), Seq(3)) == ""


def test_doubts_end_with_the_variable_and_with_the_process() -> None:
    doubts = Doubts()
    doubts.take(ReplicaId("r2"), (pin(),))
    doubts.take(ReplicaId("r2"), ())
    assert doubts.holders(READY) == []
    doubts.take(ReplicaId("r3"), (pin(),))
    doubts.forget(ReplicaId("r3"))
    assert doubts.holders(READY) == []


# -- in the router ------------------------------------------------------------------------------------


def sent(world: World) -> list[tuple[str, bool]]:
    """Return to whom the last event had executions sent, and whether anyway."""
    found = []
    for effect in world.last:
        if isinstance(effect, events.ToReplica) and effect.frames[0].startswith(ENVELOPE_MARK):
            envelope = read_envelope([effect.frames[0]])
            assert envelope is not None
            found.append((effect.replica, envelope.anyway))
    return found


def decline(world: World, name: str, msg_id: str, *pins: Pin) -> None:
    """Have a replica decline an execution."""
    said = {"ran": False, "declined": msgspec.to_builtins(pins)}
    world.output(name, "status", msg_id, {"execution_state": "busy"})
    world.output(
        name, "execute_reply", msg_id, {"status": "error"}, channel="shell", metadata={"replkernel": said}
    )


def passed(world: World, kind: type[Any]) -> list[Any]:
    """Return what the last event had passed on to clients."""
    return [effect for effect in world.last if isinstance(effect, kind)]


@pytest.fixture
def world() -> World:
    """Return a rotating router whose first cell has run on r1 and is committed."""
    made = World(policy="rotate").up()
    first = made.execute()
    made.output("r1", "execute_reply", first, {"status": "ok"}, channel="shell")
    made.output("r1", "status", first, {"execution_state": "idle"})
    made.commit("r1", 1)
    return made


def test_a_rotating_notebook_stays_with_the_holder(world: World) -> None:
    world.say(ReplicaUnfaithful(ReplicaId("r2"), (pin(),)))
    world.execute()
    assert sent(world) == [("r1", False)]
    world.say(ReplicaUnfaithful(ReplicaId("r2")))


def test_a_declined_cell_goes_to_the_holder_and_the_client_sees_one_busy(world: World) -> None:
    msg_id = world.execute()
    assert sent(world) == [("r2", False)]
    decline(world, "r2", msg_id, pin())
    assert passed(world, events.TakenBack) == [events.TakenBack(msg_id, begun=True)]
    assert sent(world) == [("r1", True)]
    assert passed(world, events.PassToClient) == []
    world.output("r1", "status", msg_id, {"execution_state": "busy"})
    assert passed(world, events.PassToIopub) == []
    world.output("r2", "status", msg_id, {"execution_state": "idle"})
    assert passed(world, events.PassToIopub) == []
    world.output("r1", "execute_input", msg_id, {"code": "pass", "execution_count": 2})
    assert len(passed(world, events.PassToIopub)) == 1
    assert b"could not be rebuilt faithfully" in passed(world, events.Publish)[0].content
    world.output("r1", "execute_reply", msg_id, {"status": "ok"}, channel="shell")
    assert len(passed(world, events.PassToClient)) == 1


def test_a_declined_cell_runs_anyway_where_the_holder_is_gone(world: World) -> None:
    world.lose("r1")
    msg_id = world.execute()
    world.wait(10)
    (place,) = {ReplicaId(name) for name in world.sent_to(msg_id)} - {"r1"}
    decline(world, place, msg_id, pin())
    (again,) = sent(world)
    assert again[1] and again[0] != "r1"


def test_a_declined_cell_is_not_lost_with_who_declined_it(world: World) -> None:
    msg_id = world.execute()
    world.lose("r1")
    decline(world, "r2", msg_id, pin())
    (again,) = sent(world)
    world.lose("r2" if again[0] != "r2" else "r3")
    world.output(again[0], "execute_reply", msg_id, {"status": "ok"}, channel="shell")
    assert len(passed(world, events.PassToClient)) == 1


def test_cells_behind_a_declined_one_keep_their_order(world: World) -> None:
    first = world.execute("one")
    world.execute("two")
    decline(world, "r2", first, pin())
    assert sent(world) == [("r1", True)]
    world.output("r1", "execute_reply", first, {"status": "ok"}, channel="shell")
    world.output("r1", "status", first, {"execution_state": "idle"})
    assert sent(world) == [("r1", False)], "it stays there whatever is committed"
