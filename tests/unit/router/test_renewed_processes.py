"""A process that cannot use the GPUs of a cell's lease ends, and another one on their host runs the cell."""

from __future__ import annotations

from replkernel.leasing.wire import LeaseBack, LeaseWish
from replkernel.protocol.agent_to_router import ReplicaUnfaithful
from replkernel.records import HostName, Pin, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.events import Effect
from replkernel.router.core.leased_cells import HOST_WAIT_S
from tests.support.router_world import HOST, World
from tests.unit.router.test_leased_cells import governed, wish_of

RENEWS = {"replkernel": {"ran": False, "renews": True, "leaves": True}}
THERE = HostName("there")


def granted(world: World, *, host: HostName = HOST) -> str:
    """Have a cell ask and be granted a GPU; return its id."""
    cell = world.needs(1)
    world.grant(wish_of(cell), ("g1",), host)
    return cell


def goes(world: World, name: str, cell: str, seq: int = 0) -> list[Effect]:
    """Have a replica answer that its process ends for a cell's sake."""
    said = {"replkernel": {**RENEWS["replkernel"], "seq": seq}}
    return world.output(name, "execute_reply", cell, {"status": "error"}, "shell", said)


def test_the_cell_waits_for_the_next_process_and_keeps_its_lease() -> None:
    world = governed(replicas=1)
    cell = granted(world)
    assert world.envelope(cell).stays == ""
    goes(world, "r1", cell)
    assert events.TakenBack(cell, ends=True) in world.last
    assert world.sent_to(cell) == ["r1"]
    world.lose("r1", "exit code 0")
    assert world.told() == [], "the lease is the cell's"
    world.ready("r1")
    assert world.sent_to(cell) == ["r1", "r1"]
    assert world.envelope(cell).gpus == ("g1",)
    world.begin("r1", cell)
    world.finish("r1", cell)
    assert world.seen(cell) == ["busy", "execute_input", "execute_reply:ok", "idle"]
    wishes = [message for message in world.told(world.all) if isinstance(message, LeaseWish)]
    assert len(wishes) == 1


def test_output_of_the_process_that_goes_may_come_after_its_answer() -> None:
    world = governed()
    cell = granted(world)
    goes(world, "r1", cell)
    world.output("r1", "display_data", cell, {"data": {"text/plain": "Another process takes over"}})
    world.output("r1", "status", cell, {"execution_state": "idle"})
    assert world.sent_to(cell) == ["r1", "r2"]
    world.begin("r2", cell)
    world.finish("r2", cell)
    world.output("r1", "display_data", cell, {"data": {"text/plain": "much too late"}})
    seen = world.seen(cell)
    assert seen.count("display_data") == 1, seen
    assert seen[-1] == "idle"


def test_a_process_that_took_over_is_told_that_it_must_not_go_as_well() -> None:
    world = governed(replicas=1)
    cell = granted(world)
    goes(world, "r1", cell)
    world.lose("r1", "exit code 0")
    world.ready("r1")
    stays = world.envelope(cell).stays
    assert stays is not None
    assert "already" in stays


def test_a_standby_on_the_host_takes_over_at_once_and_may_go_in_its_turn() -> None:
    world = governed()
    cell = granted(world)
    goes(world, "r1", cell)
    assert world.sent_to(cell) == ["r1", "r2"]
    assert world.envelope(cell).stays == ""
    goes(world, "r2", cell)
    goes(world, "r3", cell)
    assert world.sent_to(cell) == ["r1", "r2", "r3"], "none is left"
    world.lose("r1", "exit code 0")
    world.ready("r1")
    assert world.sent_to(cell)[3:] == ["r1"]
    assert world.envelope(cell).stays


def test_the_next_process_gets_its_time_though_the_lease_was_granted_long_ago() -> None:
    world = governed(replicas=2, hosts=(HOST, THERE))
    cell = granted(world)
    world.now += HOST_WAIT_S + 5
    goes(world, "r1", cell)
    world.lose("r1", "exit code 0")
    world.wait(1.0)
    assert LeaseBack("lease-1", 1) not in world.told(world.all)
    world.ready("r1")
    assert world.sent_to(cell) == ["r1", "r1"]


def test_comms_that_clients_keep_in_the_process_keep_it() -> None:
    world = governed(replicas=1)
    first = world.execute()
    world.begin("r1", first)
    world.output("r1", "comm_open", first, {"comm_id": "c", "target_name": "t"})
    world.finish("r1", first)
    cell = granted(world)
    assert "comms are tied" in (world.envelope(cell).stays or "")


def test_without_a_lease_nothing_is_said_of_it() -> None:
    world = governed()
    assert world.envelope(world.run("r1")).stays is None


def test_later_cells_wait_behind_it_and_an_interrupt_ends_it() -> None:
    world = governed(replicas=1)
    cell = granted(world)
    behind = world.execute()
    goes(world, "r1", cell)
    assert world.sent_to(behind) == []
    world.request("interrupt_request", channel="control")
    assert world.answer(cell)["ename"] == "KeyboardInterrupt"
    assert LeaseBack("lease-1", 1) in world.told()


def test_a_router_that_takes_over_before_the_answer_came_goes_on_with_it() -> None:
    world = governed(replicas=1)
    cell = granted(world)
    given = world.of(events.Given, world.all)[-1]
    after = World(replicas=1)
    after._requests = world._requests
    request = world._requests[cell]
    after.feed(
        events.Resumed(
            request, given.replica, given.process, given.seq, given.fence, False, 0, given.lease, idle=False
        )
    )
    after.up()
    assert after.sent_to(cell) == []
    goes(after, "r1", cell)
    after.lose("r1", "exit code 0")
    after.ready("r1")
    assert after.sent_to(cell) == ["r1"]
    assert after.envelope(cell).gpus == ("g1",)


def test_processes_are_told_whether_gpus_are_leased_though_all_see_them() -> None:
    world = governed()
    world.leases._hides = False
    assert world.envelope(world.run("r1")).leases
    alone = World().up()
    assert not alone.envelope(alone.run("r1")).leases


def test_an_answer_that_the_router_before_this_one_took_is_not_taken_again() -> None:
    world = governed(replicas=1)
    cell = granted(world)
    assert goes(world, "r1", cell, seq=7) == [events.Log(f"{cell} was sent back before, as execution 7")]
    assert world.fleet.ready() == []
    goes(world, "r1", cell, seq=1)
    assert events.TakenBack(cell, ends=True) in world.last
    assert goes(world, "r1", cell, seq=1) == []
    assert world.seen(cell) == []


def test_a_process_that_was_about_to_go_begins_nothing_so_its_cell_is_given_to_the_next() -> None:
    world = governed(replicas=1)
    cell = granted(world)
    goes(world, "r1", cell, seq=7)
    world.now += 1
    world.lose("r1", "exit code 0")
    world.ready("r1")
    assert world.sent_to(cell) == ["r1", "r1"]
    world.now += 1
    world.lose("r1", "killed by SIGKILL")
    assert world.answer(cell)["ename"] == "ExecutorLost"


def test_a_value_that_another_replica_could_not_rebuild_keeps_its_process() -> None:
    world = governed()
    first = world.run("r1")
    doubted = Pin("x", "Drops", ReplicaId("r1"), Seq(1), "", "x.b differs.")
    world.say(ReplicaUnfaithful(ReplicaId("r2"), (doubted,)))
    cell = granted(world)
    assert first != cell
    assert world.sent_to(cell) == ["r1"]
    assert world.envelope(cell).stays == "`x` (Drops) cannot be rebuilt faithfully: x.b differs"
    world.say(ReplicaUnfaithful(ReplicaId("r2")))
    goes(world, "r1", cell)
    assert world.envelope(cell).stays == "", "it was deleted, or came anew"
