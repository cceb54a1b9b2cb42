"""A running cell stands still for a shorter one: it is told to, its lease goes back, and it wishes again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replkernel.leasing.notebook import ANSWER_TYPE, QUESTION_TYPE
from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import (
    Denied,
    GrantedLease,
    LeaseBack,
    LeaseKept,
    LeaseLingers,
    LeasePause,
    LeaseWanted,
    LeaseWish,
    PausedCell,
    PauseRefused,
    Waiting,
    WishOver,
)
from replkernel.protocol.agent_to_router import LeaseFreed
from replkernel.protocol.router_to_agent import PauseCell
from replkernel.records import Fence, ReplicaId, Seq
from replkernel.router.core import events
from tests.support.router_world import HOST, World
from tests.unit.router.test_leased_cells import compute, displays, governed, wish_of

PAUSE = LeasePause("lease-1", 1, 30.0, 60.0, "H100")


def computes() -> tuple[World, str]:
    """Return a world in which a cell computes on a GPU, and the cell."""
    world = governed()
    return world, compute(world)


def left(lease: str = "lease-1", times: int = 1) -> dict[str, Any]:
    return {"lease": lease, "times": times, "ran_s": 90.0, "paused_s": 3.0, "gpu_model": "H100"}


def ask(world: World, cell: str, paused: dict[str, Any] | None = None, verb: str = "lease") -> dict[str, Any]:
    """Have the cell's process ask for GPUs to go on with; return the router's answer."""
    question: dict[str, Any] = {"verb": verb, "gpus": 1} | ({} if paused is None else {"paused": paused})
    world.output("r1", QUESTION_TYPE, cell, question, "stdin")
    answers = [each for each in world.of(events.AnswerReplica) if each.msg_type == ANSWER_TYPE]
    return dict(json.loads(answers[-1].content))


def orders(world: World) -> list[Any]:
    return [each.message for each in world.of(events.ToAgent) if isinstance(each.message, PauseCell)]


def test_a_cell_leaves_its_gpus_and_goes_on_under_another_lease() -> None:
    world, cell = computes()
    world.scheduler(PAUSE)
    (order,) = orders(world)
    assert (order.replica, order.lease, order.within_s, order.gpu_model) == ("r1", "lease-1", 30.0, "H100")
    world.now += 10.0
    assert ask(world, cell, left()) == {}
    name = f"{wish_of(cell)}:p1"
    back, wish = world.told()
    assert (back.lease, back.fence) == ("lease-1", 1)
    assert wish == LeaseWish(name, 1, (HOST,), "H100", paused=PausedCell(90.0, 3.0))
    given = world.of(events.Given)
    assert [(each.msg_id, each.lease) for each in given] == [(cell, None)], "the next router is told first"
    assert ask(world, cell, left()) == {}
    assert world.told() == [], "the same question is the same wish"
    world.scheduler(Waiting(name, 1, 300.0, "for GPUs of host a"))
    world.grant(name, ("g7",))
    assert ask(world, cell, left()) == {"gpus": ["g7"], "lease": "lease-2"}
    assert [text for _, text in displays(world, cell)] == [
        "Paused for a shorter cell, goes on in about 60 s.",
        "Paused for a shorter cell, goes on in about 5 min; for GPUs of host a.",
        "Paused for a shorter cell, it has gone on with g7.",
    ]
    world.wait(20.0)
    world.finish("r1", cell)
    lingers = [each for each in world.told(world.all) if isinstance(each, LeaseLingers)]
    assert [(each.lease, each.busy_s) for each in lingers] == [("lease-2", 20.0)], "it computed since then"


def computes_on(why: str) -> LeaseFreed:
    return LeaseFreed(ReplicaId("r1"), "lease-1", 0, why, computes_on=True)


def test_a_cell_that_ends_before_it_could_be_paused_leaves_its_gpus_and_nobody_is_told_otherwise() -> None:
    """The usual end of a cell in C code: the process says that it is over while its state is leaving."""
    world, cell = computes()
    world.scheduler(PAUSE)
    world.finish("r1", cell)
    world.scheduler(LeaseWanted("lease-1", 1, 30.0))
    world.feed(events.AgentSaid(HOST, computes_on("the cell under this lease is over")))
    assert [each for each in world.told(world.all) if isinstance(each, LeaseKept | PauseRefused)] == []
    world.feed(events.AgentSaid(HOST, LeaseFreed(ReplicaId("r1"), "lease-1", 1000)))
    assert [each.lease for each in world.told() if isinstance(each, LeaseBack)] == ["lease-1"]
    world.begin("r1", world.execute("pass"))
    assert "is over" not in str(world.all), "the next cell is told of no state that could not leave"


def test_a_cell_that_cannot_be_paused_says_why_and_computes_on() -> None:
    world, cell = computes()
    world.scheduler(PAUSE)
    world.feed(events.AgentSaid(HOST, computes_on("the driver cannot")))
    assert world.told() == [PauseRefused("lease-1", 1, "the driver cannot")]
    assert world.of(events.Given) == []
    world.finish("r1", cell)
    assert "lease-1" in [each.lease for each in world.told(world.all) if isinstance(each, LeaseLingers)]


def test_a_cell_that_has_not_begun_is_not_paused_and_one_that_is_over_gives_back_what_it_left() -> None:
    world = governed()
    cell = world.needs(1)
    world.grant(wish_of(cell), ("g0",), HOST)
    world.begin("r1", cell)
    world.finish("r1", cell)
    world.scheduler(PAUSE)
    assert orders(world) == []
    assert world.leases.held_leases.by_id["lease-1"].freeing, "what it has left there leaves"
    world.scheduler(LeasePause("lease-9", 9, 30.0))
    assert LeaseBack("lease-9", 9) in world.told(), "nobody here has that lease"


def test_an_interrupt_takes_the_wish_of_a_paused_cell_along() -> None:
    world, cell = computes()
    world.scheduler(PAUSE)
    ask(world, cell, left())
    ask(world, cell, verb="waive")
    assert WishOver(f"{wish_of(cell)}:p1") in world.told(world.all)
    world.finish("r1", cell)
    assert [text for _, text in displays(world, cell)][-1].startswith("This cell does not wait")


def test_a_denial_is_the_answer() -> None:
    world, cell = computes()
    world.scheduler(PAUSE)
    ask(world, cell, left())
    world.scheduler(Denied(f"{wish_of(cell)}:p1", "No host has a GPU."))
    assert ask(world, cell, left())["error"] == "No host has a GPU."


def test_a_cell_that_was_told_of_an_older_lease_goes_on_at_once() -> None:
    world, cell = computes()
    assert ask(world, cell, left("lease-0")) == {"gpus": ["g0"], "lease": "lease-1"}
    assert world.told() == []


def test_a_process_that_is_paused_twice_wishes_under_another_name() -> None:
    world, cell = computes()
    world.scheduler(PAUSE)
    ask(world, cell, left())
    world.grant(f"{wish_of(cell)}:p1", ("g7",))
    ask(world, cell, left())
    world.scheduler(LeasePause("lease-2", 2, 30.0, 60.0, "H100"))
    ask(world, cell, left("lease-2", 2))
    assert [each.request for each in world.told() if isinstance(each, LeaseWish)] == [f"{wish_of(cell)}:p2"]


def test_a_paused_cell_goes_on_with_its_own_request_whatever_the_notebook_asks_for_meanwhile() -> None:
    """It goes on with what it has left, also for the next router."""
    world = governed()
    whole = GpuRequest(1, preemptible=True, expected_s=7200.0)
    world.feed(events.SchedulerUp())
    world.leases.scheduler.prefer(whole)
    cell = world.execute("pass")
    world.grant(wish_of(cell), ("g0",), HOST)
    world.begin("r1", cell)
    world.scheduler(PAUSE)
    world.leases.scheduler.prefer(GpuRequest(1, part=0.25, vram_gb=20.0))
    world.told()
    ask(world, cell, left())
    (wish,) = [each for each in world.told() if isinstance(each, LeaseWish)]
    assert (wish.gpus, wish.part, wish.vram_gb) == (1, 0.0, 0.0)
    assert (wish.preemptible, wish.expected_s) == (True, 7200.0)
    assert [each.had for each in world.of(events.Given)][-1] == whole


def test_a_cell_that_takes_a_gpu_as_it_runs_may_be_paused_again_as_its_notebook_says() -> None:
    world, cell = computes()
    world.finish("r1", cell)
    world.leases.scheduler.prefer(GpuRequest(1, preemptible=True, expected_s=60.0))
    assert world.leases.like_before(1) == GpuRequest(1, preemptible=True, expected_s=60.0)


def test_a_lease_with_which_a_cell_cannot_go_on_goes_back_and_it_waits_for_another() -> None:
    world, cell = computes()
    world.scheduler(PAUSE)
    ask(world, cell, left())
    world.grant(f"{wish_of(cell)}:p1", ("g7",))
    assert ask(world, cell, left())["lease"] == "lease-2"
    world.told()
    assert ask(world, cell, left("lease-2", 2)) == {}
    back, wish = world.told()
    assert (type(back), back.lease) == (LeaseBack, "lease-2")
    assert (type(wish), wish.request) == (LeaseWish, f"{wish_of(cell)}:p2")


def test_progress_tells_that_a_cell_is_paused_and_that_it_runs_again() -> None:
    world = governed()
    cell = world.execute("pass", metadata={"replkernel": {"gpus": 1}, "cellId": "c1"})
    world.grant(wish_of(cell), ("g0",), HOST)
    world.begin("r1", cell)

    def told() -> tuple[str, bool, list[str]]:
        world.request("replkernel_progress_request", {"since": 0}, channel="control")
        one = json.loads(world.of(events.Answer)[-1].content)["executions"][-1]
        return one["state"], one["paused"], list(one["gpus"])

    assert told() == ("running", False, ["g0"])
    world.scheduler(PAUSE)
    ask(world, cell, left())
    assert told() == ("waiting", True, [])
    world.grant(f"{wish_of(cell)}:p1", ("g7",))
    ask(world, cell, left())
    assert told() == ("running", False, ["g7"])


@pytest.mark.parametrize("written", [False, True], ids=["before it knew", "after it had given back"])
def test_the_router_after_this_one_asks_by_the_same_name_and_keeps_no_lease(written: bool) -> None:
    first, cell = computes()
    world, request = World(), first._requests[cell]
    world._requests[cell] = request
    process = first.fleet.process_of(ReplicaId("r1"))
    lease = None if written else GrantedLease("lease-1", wish_of(cell), HOST, ("g0",), 1, 60.0)
    had = GpuRequest(1, preemptible=True) if written else None
    place = (ReplicaId("r1"), process, Seq(1), Fence(1))
    world.feed(events.Resumed(request, *place, shown=True, lease=lease, had=had))
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    world.up()
    assert ask(world, cell, left()) == {}
    told = [each for each in world.told(world.all) if isinstance(each, LeaseWish | LeaseBack)]
    name, far = f"{wish_of(cell)}:p1", PausedCell(90.0, 3.0)
    assert told[-1] == LeaseWish(name, 1, (HOST,), "H100", preemptible=written, paused=far)
    assert len(told) == (1 if written else 2), "what the old one has given back is not given back again"
    world.grant(f"{wish_of(cell)}:p1", ("g7",))
    assert ask(world, cell, left()) == {"gpus": ["g7"], "lease": "lease-1"}
