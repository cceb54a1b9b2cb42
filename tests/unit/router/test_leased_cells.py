"""Cells that need GPUs: asked for before they run, shown to wait, run where their lease is, given back."""

from __future__ import annotations

import json
from signal import SIGINT
from typing import Any

import pytest
from msgspec.structs import replace

from replkernel.leasing.notebook import ANSWER_TYPE, QUESTION_TYPE
from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import (
    Denied,
    GrantedLease,
    HeldLease,
    KernelGone,
    KernelHere,
    LeaseBack,
    LeaseIdle,
    LeaseKept,
    LeaseLingers,
    LeaseOver,
    LeaseWanted,
    LeaseWish,
    Waiting,
    WishOver,
)
from replkernel.protocol.agent_to_router import (
    CheckpointWritten,
    Elected,
    KernelEnded,
    KernelHibernated,
    LeaseFreed,
)
from replkernel.protocol.progress import GPU_REQUEST
from replkernel.records import Fence, HostName, Pin, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.ending import ENDING_LIMIT_S
from replkernel.router.core.leased_cells import HOST_WAIT_S
from replkernel.router.core.succession import COMMIT_LIMIT_S
from tests.support.router_world import HOST, World

OTHER = HostName("there")
ON_ITS_WAY = "their host is getting ready."


def governed(**options: Any) -> World:
    """Return a world with a scheduler that listens and all replicas ready."""
    world = World(**options).up()
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    return world


def displays(world: World, msg_id: str) -> list[tuple[str, str]]:
    """Return what the router showed under a cell: type of message and text."""
    shown = []
    for effect in world.of(events.Publish, world.all):
        if effect.parent == world.header_frame(msg_id) and effect.msg_type != "status":
            content = json.loads(effect.content)
            text = content.get("data", {}).get("text/plain", content.get("text", ""))
            shown.append((effect.msg_type, text))
    return shown


def wish_of(msg_id: str, attempt: int = 0) -> str:
    """Return the name of a cell's wish."""
    return f"k:{msg_id}:{attempt}" if attempt else f"k:{msg_id}"


def compute(world: World, name: str = "r1", gpus: tuple[str, ...] = ("g0",), host: HostName = HOST) -> str:
    """Have a cell ask, be granted its GPUs and begin; return its id."""
    cell = world.needs(len(gpus))
    world.grant(wish_of(cell), gpus, host)
    world.begin(name, cell)
    return cell


# -- the way of a cell -----------------------------------------------------------------------------------


def test_a_cell_that_asks_for_nothing_says_nothing_to_the_scheduler() -> None:
    world = governed()
    cell = world.run("r1")
    assert world.told(world.all[-20:]) == [KernelHere((HOST,))]
    assert world.envelope(cell).gpus == ()


def test_without_a_scheduler_processes_see_what_there_is() -> None:
    world = World().up()
    assert world.envelope(world.run("r1")).gpus is None
    assert world.of(events.OpenScheduler, world.all) == []


def test_where_nothing_is_hidden_only_a_leased_cell_is_told_its_gpus() -> None:
    world = governed()
    world.leases._hides = False
    assert world.envelope(world.run("r1")).gpus is None
    assert world.envelope(compute(world, gpus=("g1",))).gpus == ("g1",)


def test_a_cell_runs_with_the_gpus_of_its_lease_which_lingers_after_its_reply() -> None:
    world = governed()
    cell = world.needs(2)
    assert world.told() == [LeaseWish(wish_of(cell), 2)]
    assert world.sent_to(cell) == []
    world.grant(wish_of(cell), ("g0", "g1"))
    assert world.sent_to(cell) == ["r1"]
    assert world.envelope(cell).gpus == ("g0", "g1")
    world.begin("r1", cell)
    world.now += 3.0
    world.finish("r1", cell, idle=False)
    assert world.told() == [LeaseLingers("lease-1", 1, 3.0)]
    world.status("r1", cell, "idle")
    assert world.seen(cell) == ["busy", "execute_input", "execute_reply:ok", "idle"]
    assert displays(world, cell) == []


def test_later_cells_keep_their_order_behind_one_that_waits() -> None:
    world = governed()
    waits, plain, last = world.needs(1), world.execute(), world.needs(1)
    assert world.sent_to(plain) == []
    world.grant(wish_of(waits))
    world.begin("r1", waits)
    world.finish("r1", waits)
    assert world.sent_to(plain) == ["r1"]
    assert world.envelope(plain).gpus == ()
    assert LeaseWish(wish_of(last), 1) not in world.told(world.all)
    world.begin("r1", plain)
    world.finish("r1", plain)
    assert world.told() == [LeaseWish(wish_of(last), 1)]


def test_metadata_goes_before_the_cells_own_line_and_that_before_the_notebooks_default() -> None:
    world = governed(gpus=GpuRequest(3))
    by_default = world.execute("x = 1")
    assert world.told() == [LeaseWish(wish_of(by_default), 3)]
    world.request("interrupt_request", channel="control")
    by_line = world.execute("%%gpu 2 --vram 20 --model H100\nx = 1")
    assert world.told() == [LeaseWish(wish_of(by_line), 2, (), "H100", 20.0)]
    world.request("interrupt_request", channel="control")
    by_metadata = world.needs(1, "%%gpu 2\nx = 1")
    assert world.told() == [LeaseWish(wish_of(by_metadata), 1)]
    world.request("interrupt_request", channel="control")
    for none in (world.needs(0), world.execute("%gpu status"), world.execute("x", silent=True)):
        assert world.sent_to(none) == ["r1"]
        world.begin("r1", none)
        world.finish("r1", none)


def test_a_request_that_cannot_be_understood_is_the_cells_error_and_names_the_fix() -> None:
    world = governed()
    cell, behind = world.execute("%%gpu many\nx = 1"), world.execute()
    assert world.answer(cell)["ename"] == "BadGpuRequest"
    assert "--vram 20" in world.answer(cell)["evalue"]
    assert world.sent_to(behind) == ["r1"]


def test_a_question_is_answered_while_a_cell_waits() -> None:
    world = governed()
    cell = world.needs(1)
    question = world.request("complete_request")
    assert world.sent_to(question) == ["r1"]
    assert world.sent_to(cell) == []


# -- waiting ---------------------------------------------------------------------------------------------


def test_a_waiting_cell_shows_its_place_and_nothing_stays_of_that() -> None:
    world = governed()
    cell = world.needs(2)
    assert world.seen(cell) == []
    world.scheduler(Waiting(wish_of(cell), 3, 40.0))
    world.scheduler(Waiting(wish_of(cell), 3, 40.0))
    world.scheduler(Waiting(wish_of(cell), 2, 300.0, "1 cell computes on 2 GPUs"))
    world.scheduler(Waiting(wish_of(cell), 1))
    world.scheduler(Waiting(wish_of(cell), 0))
    world.grant(wish_of(cell), ("g0", "g1"))
    assert displays(world, cell) == [
        ("display_data", "Waiting for 2 GPUs: number 3 in the queue, about 40 s."),
        (
            "update_display_data",
            "Waiting for 2 GPUs: number 2 in the queue, about 5 min; 1 cell computes on 2 GPUs.",
        ),
        ("update_display_data", "Waiting for 2 GPUs: number 1 in the queue."),
        ("update_display_data", f"Waiting for 2 GPUs: {ON_ITS_WAY}"),
        ("clear_output", ""),
    ]  # fmt: skip
    world.begin("r1", cell)
    world.finish("r1", cell)
    assert [part for part in world.seen(cell) if "display" not in part] == [
        "busy", "clear_output", "execute_input", "execute_reply:ok", "idle",
    ]  # fmt: skip


def test_a_page_that_comes_while_a_cell_waits_sees_that_the_kernel_is_busy() -> None:
    world = governed()
    cell = world.needs(2)
    world.feed(events.Subscribed(b"", b"way"))
    assert [effect.msg_type for effect in world.of(events.Publish)] == ["iopub_welcome"]
    world.scheduler(Waiting(wish_of(cell), 3, 40.0))
    world.feed(events.Subscribed(b"", b"way"))
    busy = world.of(events.Publish)[-1]
    assert (busy.msg_type, busy.parent, busy.topic) == ("status", world.header_frame(cell), b"way")


def test_a_front_end_finds_the_place_in_the_display_s_metadata() -> None:
    world = governed()
    cell = world.needs(2)
    world.scheduler(Waiting(wish_of(cell), 3, 40.0))
    content = json.loads(world.of(events.Publish)[-1].content)
    assert content["metadata"]["replkernel"]["waiting"] == {"gpus": 2, "position": 3, "estimate_s": 40.0}


def test_a_silent_cell_waits_without_a_line() -> None:
    world = governed()
    cell = world.needs(1, silent=True)
    world.scheduler(Waiting(wish_of(cell), 1))
    assert world.seen(cell) == []


def test_an_interrupt_while_waiting_leaves_the_queue_and_aborts_what_waits_behind() -> None:
    world = governed()
    cell, behind = world.needs(1), world.execute()
    world.scheduler(Waiting(wish_of(cell), 2))
    world.request("interrupt_request", channel="control")
    assert WishOver(wish_of(cell)) in world.told()
    assert world.answer(cell)["ename"] == "KeyboardInterrupt"
    assert world.answer(behind)["status"] == "aborted"
    assert world.seen(cell) == [
        "busy", "display_data", "clear_output", "execute_input", "error", "execute_reply:error", "idle",
    ]  # fmt: skip
    world.grant(wish_of(cell))
    assert world.told() == [LeaseBack("lease-1", 1)]


def test_a_denial_is_the_cells_error_and_names_why() -> None:
    world = governed()
    cell, behind = world.needs(9), world.execute()
    world.scheduler(Denied(wish_of(cell), "The largest possible request is 4 GPUs."))
    assert world.answer(cell)["ename"] == "GpusDenied"
    assert world.answer(cell)["evalue"] == "The largest possible request is 4 GPUs."
    assert world.answer(behind)["status"] == "aborted"
    assert world.sent_to(cell) == []


def test_without_a_scheduler_the_cell_is_refused_and_the_fix_is_named() -> None:
    world = World().up()
    cell = world.needs(2)
    assert len(world.of(events.OpenScheduler)) == 1
    world.feed(events.SchedulerMissing(""))
    assert world.answer(cell)["ename"] == "NoScheduler"
    assert "replkernel scheduler" in world.answer(cell)["evalue"]
    assert world.sent_to(world.execute()) == ["r1"]


def test_a_cell_waits_for_a_scheduler_that_is_away_and_says_so() -> None:
    world = governed()
    world.feed(events.SchedulerDown("The scheduler does not answer."))
    cell = world.needs(1)
    assert displays(world, cell) == [("display_data", "Waiting for 1 GPU: The scheduler does not answer.")]
    world.feed(events.SchedulerUp())
    assert world.told() == [KernelHere((HOST,)), LeaseWish(wish_of(cell), 1)]
    world.grant(wish_of(cell))
    assert world.sent_to(cell) == ["r1"]


def test_a_scheduler_that_comes_back_after_a_night_finds_the_lease_of_the_cell_that_runs() -> None:
    world = governed()
    cell = compute(world)
    world.feed(events.SchedulerDown("The scheduler does not answer."))
    world.feed(events.SchedulerMissing(""))
    assert world.of(events.OpenScheduler) == [events.OpenScheduler(starts=False)]
    world.wait(8 * 3600.0)
    world.feed(events.SchedulerUp())
    assert world.told() == [KernelHere((HOST,), leases=(HeldLease("lease-1", 1),), executor=HOST)]
    world.finish("r1", cell)
    assert LeaseLingers("lease-1", 1, 8 * 3600.0) in world.told(world.all)


# -- leases in force ---------------------------------------------------------------------------------------


def test_a_lease_is_renewed_at_a_third_of_its_time_as_long_as_it_is_held() -> None:
    world = governed()
    cell = compute(world)
    assert world.told(world.wait(61.0)) == [LeaseKept("lease-1", 1)] * 3
    world.finish("r1", cell)
    assert LeaseKept("lease-1", 1) in world.told(world.wait(21.0))


def test_a_lease_that_is_over_interrupts_its_cell_which_says_by_name_what_it_lost() -> None:
    world = governed()
    cell = compute(world, gpus=("GPU-7",))
    effects = world.scheduler(LeaseOver("lease-1", "expired"))
    assert world.of(events.SignalProcess, effects) == [events.SignalProcess(ReplicaId("r1"), SIGINT)]
    assert "GPU-7" in displays(world, cell)[-1][1] and "expired" in displays(world, cell)[-1][1]
    world.finish("r1", cell, status="error")
    assert world.told() == []


def test_a_cell_that_lost_its_lease_ends_with_an_error_of_that_name_in_reply_and_output() -> None:
    world = governed()
    cell = compute(world, gpus=("GPU-7",))
    world.scheduler(LeaseOver("lease-1", "host down"))
    interrupted = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["line 3", "KeyboardInterrupt"]}
    (shown,) = world.of(events.Publish, world.output("r1", "error", cell, interrupted))
    content = {"status": "error", "execution_count": 4, **interrupted}
    world.output("r1", "execute_reply", cell, content, "shell")
    replied = world.answer(cell)
    for said in (json.loads(shown.content), replied):
        assert said["ename"] == "LeaseLost" and "GPU-7" in said["evalue"] and "host down" in said["evalue"]
        assert said["traceback"][0] == "line 3" and "LeaseLost" in said["traceback"][-1]
        assert len(said["traceback"]) == 2
    assert (replied["status"], replied["execution_count"]) == ("error", 4)


def test_a_cell_is_told_that_it_leaves_its_gpus_idle_and_interrupted_when_its_time_is_over() -> None:
    world = governed()
    cell = compute(world)
    effects = world.scheduler(LeaseIdle("lease-1", 0.012, 900.0, 1800.0))
    assert "The GPU of this cell has computed 1 % of the last 15 min." in str(effects)
    assert "interrupted in 30 min" in str(effects)
    assert world.of(events.SignalProcess, effects) == []
    effects = world.scheduler(LeaseIdle("lease-1", 0.012, 2700.0, 0.0))
    assert "so the cell is interrupted" in str(effects)
    assert world.of(events.SignalProcess, effects) == [events.SignalProcess(ReplicaId("r1"), SIGINT)]
    world.finish("r1", cell, idle=False)
    assert world.scheduler(LeaseIdle("lease-1", 0.0, 2800.0, 0.0)) == [], "it has been answered"
    world.status("r1", cell, "idle")
    for idle in (LeaseIdle("lease-1", 0.0, 900.0), LeaseIdle("other", 0.0, 900.0, 0.0)):
        assert world.scheduler(idle) == [], "its cell is over, or it is another kernel's"


def test_a_cell_that_was_not_told_before_is_told_and_not_interrupted() -> None:
    world = governed()
    compute(world)
    effects = world.scheduler(LeaseIdle("lease-1", 0.012, 2700.0, 0.0))
    assert "has computed 1 % of the last 45 min" in str(effects) and "interrupted" not in str(effects)
    assert world.of(events.SignalProcess, effects) == []


def test_a_user_who_interrupts_and_a_cell_that_ends_otherwise_keep_their_own_errors() -> None:
    world = governed()
    cell = compute(world)
    interrupted = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
    assert world.of(events.PassToIopub, world.output("r1", "error", cell, interrupted))
    world.scheduler(LeaseOver("lease-1", "expired"))
    other = {"status": "error", "execution_count": 1, "ename": "ValueError", "evalue": "7", "traceback": []}
    assert world.of(events.PassToClient, world.output("r1", "execute_reply", cell, other, "shell"))


def test_a_lease_that_is_over_between_cells_disturbs_nobody() -> None:
    world = governed()
    world.finish("r1", compute(world))
    effects = world.scheduler(LeaseOver("lease-1", "reused"))
    assert world.of(events.ToAgent, effects) == []
    assert world.told(world.wait(61.0)) == []


def test_a_lingering_lease_goes_back_when_it_is_wanted() -> None:
    world = governed()
    world.finish("r1", compute(world))
    world.scheduler(LeaseWanted("lease-1", 1, 30.0))
    assert world.told() == []
    world.say(LeaseFreed(ReplicaId("r1"), "lease-1", 4000))
    assert world.told() == [LeaseBack("lease-1", 1)]


def test_the_owner_of_state_that_cannot_leave_its_gpu_is_told_with_the_next_cell() -> None:
    world = governed()
    world.finish("r1", compute(world))
    world.scheduler(LeaseWanted("lease-1", 1, 30.0))
    said = LeaseFreed(ReplicaId("r1"), "lease-1", 0, "a CUDA graph holds it")
    world.say(said)
    assert world.told() == [LeaseKept("lease-1", 1, stays=True)]
    cell = world.execute()
    world.begin("r1", cell)
    assert "a CUDA graph holds it" in str(world.last)
    world.finish("r1", cell)
    world.wait(21.0)
    world.say(said)
    again = world.execute()
    world.begin("r1", again)
    assert "a CUDA graph holds it" not in str(world.last), "once is enough"


def test_the_owner_is_told_when_gpus_go_before_the_state_has_left_them() -> None:
    world = governed()
    world.finish("r1", compute(world), gpu_bytes=1)
    world.scheduler(LeaseWanted("lease-1", 1, 30.0))
    world.scheduler(LeaseOver("lease-1", "not given back"))
    cell = world.execute()
    world.begin("r1", cell)
    assert "before its state had left the GPUs (not given back)" in str(world.last)


def test_a_cell_that_reaches_state_on_gpus_is_sent_again_with_a_lease() -> None:
    world = governed()
    cell = world.execute()
    said = {"replkernel": {"ran": False, "wants_gpus": 2}}
    world.output("r1", "execute_reply", cell, {"status": "error"}, "shell", said)
    wishes = [message for message in world.told(world.all) if isinstance(message, LeaseWish)]
    assert wishes == [LeaseWish(wish_of(cell), 2)]
    world.grant(wish_of(cell), gpus=("g0", "g1"))
    assert len(world.sent_to(cell)) == 2
    assert world.envelope(cell).gpus == ("g0", "g1")
    assert world.seen(cell) == []


def test_a_lost_process_costs_its_cell_and_its_lease() -> None:
    world = governed()
    cell = compute(world)
    world.lose("r1")
    assert world.answer(cell)["ename"] == "ExecutorLost"
    assert LeaseBack("lease-1", 1) in world.told()


def test_a_cell_that_did_not_reach_its_process_keeps_its_lease_for_the_next() -> None:
    world = governed()
    cell = world.needs(1)
    world.scheduler(Waiting(wish_of(cell), 1))
    world.grant(wish_of(cell))
    world.feed(events.Undelivered(ReplicaId("r1"), cell))
    world.lose("r1")
    for name in ("r2", "r3"):
        world.say(Elected(Seq(2), ReplicaId(name)))
    assert [message for message in world.told(world.all) if isinstance(message, LeaseBack | LeaseWish)] == [
        LeaseWish(wish_of(cell), 1)
    ]
    assert len(world.sent_to(cell)) == 2
    assert world.envelope(cell).gpus == ("g0",)


def test_a_cell_that_is_sent_again_by_its_client_is_not_asked_for_again() -> None:
    world = governed()
    cell = world.needs(1)
    world.needs(1, msg_id=cell)
    assert [m for m in world.told(world.all) if isinstance(m, LeaseWish)] == [LeaseWish(wish_of(cell), 1)]
    world.grant(wish_of(cell))
    world.needs(1, msg_id=cell)
    world.begin("r1", cell)
    world.finish("r1", cell)
    world.needs(1, msg_id=cell)
    assert len(world.sent_to(cell)) == 1
    assert [m for m in world.told(world.all) if isinstance(m, LeaseWish)] == [LeaseWish(wish_of(cell), 1)]


# -- hosts ---------------------------------------------------------------------------------------------------


def two_hosts() -> World:
    """Return a world with r1 and r3 on one host, r2 on another, and a scheduler."""
    return governed(hosts=(HOST, OTHER))


def test_a_cell_goes_to_the_host_of_its_lease_once_all_before_it_is_durable() -> None:
    world = two_hosts()
    world.run("r1")
    cell = world.needs(1)
    world.grant(wish_of(cell), host=OTHER)
    assert world.sent_to(cell) == []
    world.commit("r1", 1)
    assert world.sent_to(cell) == ["r2"]
    assert world.envelope(cell).needs == 1


def test_gpus_where_the_notebook_does_not_get_are_given_back_for_those_of_its_own_host() -> None:
    world = two_hosts()
    world.run("r1")
    cell = world.needs(1)
    world.grant(wish_of(cell), host=OTHER)
    effects = world.wait(COMMIT_LIMIT_S + 1)
    told = world.told(effects)
    assert LeaseBack("lease-1", 1) in told
    assert LeaseWish(wish_of(cell, 1), 1, (HOST,)) in told
    world.grant(wish_of(cell, 1))
    assert world.sent_to(cell) == ["r1"]


def test_a_pinned_notebook_asks_for_gpus_where_it_is_bound() -> None:
    world = two_hosts()
    world.run("r1")
    world.commit("r1", 1, (Pin("f", "file", ReplicaId("r1"), Seq(1)),))
    cell = world.needs(1)
    here, wish = world.told()
    assert isinstance(here, KernelHere)
    assert here.executor == HOST, "the first wish tells who ran last"
    assert wish == LeaseWish(wish_of(cell), 1, (HOST,))


def test_a_notebook_that_is_bound_after_it_asked_gives_back_what_it_cannot_use() -> None:
    world = two_hosts()
    world.run("r1")
    cell = world.needs(1)
    world.grant(wish_of(cell), host=OTHER)
    world.commit("r1", 1, (Pin("f", "file", ReplicaId("r1"), Seq(1)),))
    assert world.told() == [LeaseBack("lease-1", 1), LeaseWish(wish_of(cell, 1), 1, (HOST,))]


def test_gpus_of_a_host_that_has_no_replica_for_long_are_changed_for_those_of_one_that_has() -> None:
    world = World(hosts=(HOST, OTHER)).up("r1", "r3")
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    cell = world.needs(1)
    world.grant(wish_of(cell), host=OTHER)
    assert world.told(world.wait(HOST_WAIT_S - 1)) == []
    assert world.told(world.wait(2)) == [LeaseBack("lease-1", 1), LeaseWish(wish_of(cell, 1), 1, (HOST,))]


def test_the_scheduler_is_told_when_the_kernel_has_other_hosts() -> None:
    world = two_hosts()
    assert KernelHere((HOST, OTHER)) in world.told(world.all)
    world.fleet.retire(ReplicaId("r2"))
    world.feed(events.Tick())
    assert world.told() == [KernelHere((HOST,))]


# -- the life of the kernel --------------------------------------------------------------------------------


def test_a_kernel_that_ends_gives_everything_back_once_its_processes_have_left_the_gpus() -> None:
    world = governed()
    world.finish("r1", compute(world))
    world.request("shutdown_request", {"restart": False}, channel="control")
    assert world.told() == []
    world.say(KernelEnded(world.fleet.kernel_id))
    assert world.told() == [KernelGone()]


@pytest.mark.parametrize("agent", ["is late", "is gone"])
def test_no_gpus_are_given_back_for_a_host_that_has_not_confirmed_the_end(agent: str) -> None:
    """Its agent says when no process is left there, or the next one does."""
    world = governed()
    world.finish("r1", compute(world))
    world.request("shutdown_request", {"restart": False}, channel="control")
    if agent == "is gone":
        world.feed(events.AgentGone(HOST))
    world.wait(ENDING_LIMIT_S)
    assert KernelGone() not in world.told(world.all)
    assert world.of(events.Exit, world.all) == [events.Exit(0)]


def test_a_kernel_that_hibernates_gives_everything_back_and_is_there_again_when_it_wakes() -> None:
    world = governed()
    world.finish("r1", compute(world))
    world.commit("r1", 1)
    world.fleet.hosts[HOST].keeps = True
    world.request("replkernel_hibernate_request", channel="control")
    world.say(CheckpointWritten(world.fleet.kernel_id, "name", Seq(1)))
    world.say(KernelHibernated(world.fleet.kernel_id))
    assert world.fleet.asleep
    assert KernelGone() in world.told()
    world.execute()
    assert KernelHere((HOST,)) in world.told(world.all[-20:])


def test_the_next_router_renews_the_lease_of_the_cell_that_runs_and_lets_it_linger_then() -> None:
    first = governed()
    cell = compute(first)
    request = first._requests[cell]
    lease = GrantedLease("lease-1", wish_of(cell), HOST, ("g0",), 1, 60.0)
    world = World()
    world._requests[cell] = request
    process = first.fleet.process_of(ReplicaId("r1"))
    world.feed(events.Resumed(request, ReplicaId("r1"), process, Seq(1), Fence(1), shown=True, lease=lease))
    assert len(world.of(events.OpenScheduler)) == 1
    world.feed(events.SchedulerUp())
    assert world.told() == [KernelHere((HOST,), leases=(HeldLease("lease-1", 1),))]
    world.up()
    world.finish("r1", cell)
    assert any(isinstance(message, LeaseLingers) for message in world.told(world.all))
    assert world.sent_to(cell) == []


def test_the_next_router_goes_on_with_the_line_of_a_cell_that_waits() -> None:
    first = governed()
    cell = first.needs(2)
    first.scheduler(Waiting(wish_of(cell), 3, 40.0))
    world = World()
    world._requests[cell] = first._requests[cell]
    world.feed(events.Waited(first._requests[cell]))
    world.up()
    world.feed(events.SchedulerUp())
    world.scheduler(Waiting(wish_of(cell), 3, 40.0))
    world.grant(wish_of(cell), ("g0", "g1"))
    world.begin("r1", cell)
    world.finish("r1", cell)
    assert world.seen(cell) == [
        "update_display_data", "clear_output", "execute_input", "execute_reply:ok", "idle",
    ]  # fmt: skip


# -- %gpu ----------------------------------------------------------------------------------------------------


def ask(world: World, verb: str, **fields: Any) -> dict[str, Any]:
    """Have the running cell ask its router; return the answer, empty while there is none."""
    world.output("r1", QUESTION_TYPE, "any", {"verb": verb, **fields}, "stdin")
    return answer(world)


def answer(world: World) -> dict[str, Any]:
    found = world.of(events.AnswerReplica)
    assert all((effect.replica, effect.msg_type) == ("r1", ANSWER_TYPE) for effect in found)
    return dict(json.loads(found[-1].content)) if found else {}


def test_a_default_holds_from_the_next_cell_on_and_is_remembered() -> None:
    world = governed()
    cell = world.execute("%gpu 2")
    world.begin("r1", cell)
    assert "2 GPUs" in ask(world, "default", gpus=2)["text"]
    assert world.of(events.Remember) == [events.Remember(GpuRequest(2))]
    assert world.told() == [KernelHere((HOST,), 2, executor=HOST)]
    world.finish("r1", cell)
    later = world.execute()
    assert world.told() == [LeaseWish(wish_of(later), 2)]


def test_a_default_that_a_form_changes_is_shared_as_before_while_that_can_be() -> None:
    half = GpuRequest(1, part=0.5, shared=True)
    world = governed(gpus=half)
    for said, wanted in (
        ({"gpus": 1, "part": 0.25, "vram_gb": 8.0}, replace(half, part=0.25, vram_gb=8.0)),
        ({"gpus": 1, "vram_gb": 20.0}, replace(half, part=1.0, vram_gb=20.0)),
        ({"gpus": 2}, GpuRequest(2)),
        ({"gpus": 1, "part": 0.5}, GpuRequest(1, part=0.5)),
    ):
        world.request(GPU_REQUEST, {"verb": "default", **said}, channel="control")
        assert world.of(events.Remember) == [events.Remember(wanted)]


def test_off_and_release_give_back_what_lingers_now_and_the_cells_own_when_it_ends() -> None:
    world = governed(gpus=GpuRequest(1))
    world.finish("r1", compute(world, gpus=("g0",)))
    cell = compute(world, gpus=("g1",))
    assert "1 GPU" in ask(world, "release")["text"]
    world.say(LeaseFreed(ReplicaId("r1"), "lease-1"))
    assert world.told() == [LeaseBack("lease-1", 1)]
    ask(world, "off")
    assert world.of(events.Remember) == [events.Remember(None)]
    world.finish("r1", cell)
    assert [type(message) for message in world.told(world.all)][-1] is LeaseLingers
    world.say(LeaseFreed(ReplicaId("r1"), "lease-2"))
    assert [type(message) for message in world.told(world.all)][-1] is LeaseBack
    assert world.sent_to(world.execute()) == ["r1"]


def test_the_status_says_what_is_asked_for_held_and_kept() -> None:
    world = governed(gpus=GpuRequest(2, 20.0, "H100"))
    world.finish("r1", compute(world, gpus=("g0",)))
    compute(world, gpus=("g1", "g2"))
    text = ask(world, "status")["text"]
    for part in (
        "2 H100 GPUs of at least 20 GiB",
        "g0",
        "This cell has 2 GPUs on host here (g1, g2)",
        "listens",
    ):
        assert part in text


def test_a_question_waits_until_it_is_known_whether_there_is_a_scheduler() -> None:
    world = World().up()
    world.begin("r1", world.execute("%gpu 2"))
    assert ask(world, "default", gpus=2) == {}
    assert len(world.of(events.OpenScheduler)) == 1
    world.feed(events.SchedulerMissing(""))
    assert "replkernel scheduler" in answer(world)["error"]
    assert world.of(events.Remember, world.all) == []
    assert ask(world, "off") == {}
    world.feed(events.SchedulerUp())
    assert "get no GPU unless they ask" in answer(world)["text"]


def test_a_question_that_does_not_fit_is_answered_all_the_same() -> None:
    world = governed()
    assert "error" in ask(world, "explode")
    assert "error" in ask(world, "default", gpus=-1)


@pytest.mark.parametrize("verb", ["status", "release", "off"])
def test_questions_pass_no_client(verb: str) -> None:
    world = governed()
    ask(world, verb)
    assert world.of(events.PassToClient) == []


def test_a_wait_that_is_over_does_not_wake_a_router_whose_cell_waits_for_gpus() -> None:
    world = World(policy="rotate").up("r1")
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    world.run("r1")
    world.execute()
    world.request("interrupt_request", channel="control")
    cell = world.needs(1)
    world.wait(60)
    world.grant(wish_of(cell))
    world.wait(60)
    assert world.sent_to(cell) == ["r1"]
