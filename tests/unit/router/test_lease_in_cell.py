"""A cell that runs without a lease and reaches a GPU: asked often, waited for, granted, given back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replkernel.leasing.notebook import ANSWER_TYPE, QUESTION_TYPE
from replkernel.leasing.wire import Denied, LeaseBack, LeaseKept, LeaseLingers, LeaseWish, Waiting, WishOver
from replkernel.router.core import events
from tests.support.router_world import HOST, World
from tests.unit.router.test_leased_cells import displays, governed, wish_of


def running(code: str = "x = put(y)", **options: Any) -> tuple[World, str]:
    """Return a world in which a cell runs without a lease, and the cell."""
    world = governed()
    cell = world.execute(code, **options)
    world.begin("r1", cell)
    return world, cell


def ask(world: World, cell: str, verb: str = "lease", name: str = "r1") -> dict[str, Any]:
    """Have a cell's process ask for a GPU; return the router's answer."""
    world.output(name, QUESTION_TYPE, cell, {"verb": verb, "gpus": 1}, "stdin")
    answers = [each for each in world.of(events.AnswerReplica) if each.msg_type == ANSWER_TYPE]
    return dict(json.loads(answers[-1].content))


def test_a_running_cell_wishes_on_its_host_once_and_is_granted_its_lease() -> None:
    world, cell = running()
    assert ask(world, cell) == {}
    assert world.told() == [LeaseWish(wish_of(cell), 1, (HOST,))]
    assert ask(world, cell) == {}
    assert world.told() == []
    world.now += 5.0
    world.grant(wish_of(cell), ("g3",))
    assert ask(world, cell) == {"gpus": ["g3"]}
    given = world.of(events.Given)
    assert [(each.msg_id, each.lease and each.lease.gpus) for each in given] == [(cell, ("g3",))]
    assert ask(world, cell) == {"gpus": ["g3"]}
    assert world.of(events.Given) == [], "the next router is told once"
    assert displays(world, cell) == [], "what is served at once shows nothing"
    world.wait(25.0)
    assert LeaseKept("lease-1", 1) in world.told(world.all)
    world.finish("r1", cell)
    assert LeaseLingers("lease-1", 1, 25.0) in world.told(world.all), "it computed since it had it"


def test_its_line_tells_its_place_and_in_the_end_what_became_of_it_and_clears_no_output() -> None:
    world, cell = running()
    ask(world, cell)
    world.scheduler(Waiting(wish_of(cell), 2, 30.0))
    world.scheduler(Waiting(wish_of(cell), 1, 10.0))
    world.grant(wish_of(cell), ("g3",))
    ask(world, cell)
    shown = displays(world, cell)
    assert [kind for kind, _ in shown] == ["display_data", *["update_display_data"] * 2]
    assert "number 2 in the queue" in shown[0][1]
    assert "number 1 in the queue" in shown[1][1]
    assert shown[2][1] == "This cell has got g3, at its first use of a GPU."
    world.finish("r1", cell)
    assert world.seen(cell).count("busy") == 1
    assert "clear_output" not in world.seen(cell)


def test_a_denial_is_the_answer_and_a_later_question_is_another_wish() -> None:
    world, cell = running()
    ask(world, cell)
    world.scheduler(Denied(wish_of(cell), "No host has a GPU."))
    assert ask(world, cell)["error"] == "No host has a GPU."
    ask(world, cell)
    assert world.told() == [LeaseWish(wish_of(cell, 1), 1, (HOST,))]


@pytest.mark.parametrize("granted", [False, True])
def test_a_cell_that_waits_no_more_or_ends_takes_its_wish_along(granted: bool) -> None:
    for ends in (lambda world, cell: ask(world, cell, "waive"), lambda world, cell: world.finish("r1", cell)):
        world, cell = running()
        ask(world, cell)
        if granted:
            world.grant(wish_of(cell), ("g3",))
        ends(world, cell)
        wanted = LeaseBack("lease-1", 1) if granted else WishOver(wish_of(cell))
        assert wanted in world.told(world.all)


def test_a_process_that_dies_while_it_waits_leaves_no_wish() -> None:
    world, cell = running()
    ask(world, cell)
    world.lose("r1")
    assert world.answer(cell)["ename"] == "ExecutorLost"
    assert WishOver(wish_of(cell)) in world.told(world.all)
    assert "clear_output" not in world.seen(cell)


def test_a_cell_that_says_it_needs_none_or_that_is_over_gets_none() -> None:
    world, cell = running("%%gpu 0\nx = put(y)")
    assert "%%gpu 0" in ask(world, cell)["error"]
    world.finish("r1", cell)
    assert "is over" in ask(world, cell)["error"]
    world, cell = running(metadata={"replkernel": {"gpus": 0}})
    assert "needs no GPU" in ask(world, cell)["error"]
    assert "is over" in ask(world, cell, name="r2")["error"], "another process is not the cell's"


def test_progress_tells_of_it_as_of_any_cell_that_waits() -> None:
    world = governed()
    cell = world.execute("x = put(y)", metadata={"cellId": "c1"})
    world.begin("r1", cell)
    ask(world, cell)
    world.scheduler(Waiting(wish_of(cell), 1))

    def told() -> tuple[str, Any, list[str]]:
        world.request("replkernel_progress_request", {"since": 0}, channel="control")
        content = json.loads(world.of(events.Answer)[-1].content)
        one = content["executions"][-1]
        return one["state"], one["position"], list(one["gpus"])

    assert told() == ("waiting", 1, [])
    world.grant(wish_of(cell), ("g3",))
    ask(world, cell)
    assert told() == ("running", None, ["g3"])


def test_without_a_scheduler_the_answer_names_the_fix() -> None:
    world = World().up()
    cell = world.execute()
    world.begin("r1", cell)
    said: list[str] = []
    for _ in range(3):
        world.output("r1", QUESTION_TYPE, cell, {"verb": "lease", "gpus": 1}, "stdin")
        world.feed(events.SchedulerMissing("nobody listens"))
        said += [json.loads(each.content).get("error", "") for each in world.of(events.AnswerReplica)]
    assert any("start one with `replkernel scheduler`" in each for each in said)
