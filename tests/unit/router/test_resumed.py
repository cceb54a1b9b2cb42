"""A router that takes over goes on with what the one before it had begun, and never runs it again."""

from __future__ import annotations

from replkernel.leasing.wire import GrantedLease
from replkernel.protocol.envelope import Afresh
from replkernel.records import Fence, HostName, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.events import ClientRequest, Header
from replkernel.router.core.loss import TAIL_LIMIT_S
from replkernel.router.core.resumed_cells import RESUMED_LIMIT_S
from replkernel.router.core.succession import ELECTION_LIMIT_S
from replkernel.router.core.wire import DELIMITER
from tests.support.router_world import CLIENT, World, pack


def asked(world: World, msg_id: str, code: str = "pass") -> ClientRequest:
    """Return a request as the router before this one kept it."""
    header = Header(msg_id, "execute_request", "s")
    frame = pack({"msg_id": msg_id, "msg_type": "execute_request", "session": "s"})
    frames = [DELIMITER, b"sig", frame, b"{}", b"{}", pack({"code": code})]
    request = ClientRequest("shell", (CLIENT,), header, frame, frames[5], frames)
    world._requests[msg_id] = request
    return request


def resume(
    world: World,
    msg_id: str = "old",
    *,
    process: str = "ipc://r1-0.0-s",
    shown: bool = True,
    idle: bool = False,
) -> None:
    """Have the router learn of an execution that the one before it gave to r1."""
    request = asked(world, msg_id)
    world.feed(events.Resumed(request, ReplicaId("r1"), process, Seq(7), Fence(9), shown, idle=idle))


def test_the_reply_of_what_ran_passes_and_the_next_cell_follows() -> None:
    world = World()
    resume(world)
    world.up()
    behind = world.execute()
    assert world.sent_to(behind) == []
    world.output("r1", "stream", "old", {"name": "stdout", "text": "x"})
    world.finish("r1", "old")
    assert world.seen("old") == ["stream", "execute_reply:ok", "idle"]
    assert world.sent_to(behind) == ["r1"]
    assert world.envelope(behind).seq == 8
    assert world.envelope(behind).fence > 9


def test_a_message_published_again_is_not_seen_again() -> None:
    world = World()
    resume(world)
    world.up()
    world.begin("r1", "old")
    assert world.seen("old") == []


def test_an_idle_that_was_seen_is_not_seen_again_and_only_the_reply_is_waited_for() -> None:
    world = World()
    resume(world, idle=True)
    world.up()
    behind = world.execute()
    world.finish("r1", "old")
    assert world.seen("old") == ["execute_reply:ok"]
    assert world.sent_to(behind) == ["r1"]


def test_the_busy_of_a_process_that_sent_its_cell_back_is_not_seen_again() -> None:
    world = World()
    world.feed(events.Waited(asked(world, "old"), line=False))
    world.up()
    assert world.sent_to("old") == ["r1"]
    world.status("r1", "old", "busy")
    assert world.seen("old") == []
    world.finish("r1", "old")
    assert world.seen("old") == ["execute_reply:ok", "idle"]


def test_a_process_that_told_the_router_before_that_it_ends_begins_nothing() -> None:
    world = World(replicas=1)
    world.feed(events.Waited(asked(world, "old"), line=False, ends=("r1", "ipc://r1-0.0-s")))
    world.up()
    assert world.sent_to("old") == ["r1"]
    world.now += 1
    world.lose("r1", "exit code 0")
    world.ready("r1")
    assert world.sent_to("old") == ["r1", "r1"]
    assert world.seen("old") == []


def test_an_error_aborts_what_waited() -> None:
    world = World()
    resume(world)
    world.up()
    behind = world.execute()
    world.finish("r1", "old", status="error")
    assert world.answer(behind)["status"] == "aborted"


def test_a_process_that_was_replaced_has_taken_its_cell_along() -> None:
    world = World()
    resume(world, process="ipc://another")
    world.up()
    assert world.answer("old")["ename"] == "ExecutorLost"
    assert world.seen("old") == ["error", "execute_reply:error", "idle"]
    assert world.sent_to("old") == []


def test_a_process_that_is_not_found_is_not_waited_for_for_ever() -> None:
    world = World()
    resume(world)
    world.up("r2", "r3")
    behind = world.execute()
    world.wait(RESUMED_LIMIT_S - 1)
    assert world.seen("old") == []
    world.wait(2)
    assert world.answer("old")["ename"] == "ExecutorLost"
    assert world.answer(behind)["status"] == "aborted"


def test_an_answered_cell_is_answered_again_and_not_run() -> None:
    world = World()
    header = Header("done", "execute_request", "s")
    world.feed(
        events.Answered(
            header, pack({"status": "ok", "execution_count": 4}), b"{}", ReplicaId("r1"), idle=True
        )
    )
    world.up()
    again = world.execute(msg_id="done")
    assert world.answer(again)["execution_count"] == 4
    assert world.sent_to(again) == []


def answered_before(world: World, process: str) -> None:
    """Have the router learn of an execution that r1's `process` had run and answered before it."""
    header = Header("done", "execute_request", "s")
    content = pack({"status": "ok", "execution_count": 4})
    metadata = pack({"replkernel": {"replica": "r1", "ran": True}})
    given = (process, Seq(7), Fence(9), 4)
    world.feed(events.Answered(header, content, metadata, ReplicaId("r1"), True, *given))


def test_an_uncommitted_cell_of_a_process_that_died_with_its_router_is_lost() -> None:
    world = World()
    answered_before(world, "ipc://another")
    world.up()
    cell = world.execute()
    assert world.sent_to(cell) == []
    world.wait(TAIL_LIMIT_S + ELECTION_LIMIT_S + 1)
    assert len(world.sent_to(cell)) == 1
    assert (world.envelope(cell).seq, world.envelope(cell).needs, world.envelope(cell).counted) == (8, 0, 4)
    assert world.envelope(cell).afresh == Afresh(4, unlogged=True)


def test_a_process_that_outlived_its_router_goes_on_with_what_it_ran() -> None:
    world = World()
    answered_before(world, "ipc://r1-0.0-s")
    world.up()
    cell = world.execute()
    assert world.sent_to(cell) == ["r1"]
    assert world.envelope(cell).needs == 7


def test_a_committed_cell_of_a_process_that_died_with_its_router_is_not_lost() -> None:
    world = World()
    answered_before(world, "ipc://another")
    world.up()
    world.commit("r1", 7)
    cell = world.execute()
    world.wait(ELECTION_LIMIT_S + 1)
    assert len(world.sent_to(cell)) == 1
    assert world.envelope(cell).needs == 7


def test_how_much_memory_a_cell_that_runs_has_asked_for_is_known_again() -> None:
    world = World()
    lease = GrantedLease("l1", "m1", HostName("h1"), ("GPU-1",), 1, 60.0)
    request = asked(world, "old", "%%gpu 1 --vram 20\npass")
    world.feed(events.Resumed(request, ReplicaId("r1"), "ipc://r1-0.0-s", Seq(7), Fence(9), True, 0, lease))
    held = world.router._parts.leases.held_leases.of_cell("old")
    assert held is not None
    assert held.vram_gb == 20
