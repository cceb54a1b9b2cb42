"""What is used of GPUs beside what is leased: told in the cell that runs or with the next, once of each."""

from __future__ import annotations

import json

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import LeaseOver
from replkernel.protocol.agent_to_router import GpusUsed
from replkernel.records import ReplicaId
from replkernel.router.core import events
from replkernel.router.core.usage import LOOKS_MIN, too_much
from tests.support.router_world import World
from tests.unit.router.test_leased_cells import compute, governed, wish_of

GB = 2**30


def look(world: World, *gpus: tuple[str, int], times: int = LOOKS_MIN) -> list[str]:
    """Have an agent see r1's process use these so often; return what was shown under cells by then."""
    for _ in range(times):
        world.say(GpusUsed(ReplicaId("r1"), gpus))
    return told(world)


def told(world: World) -> list[str]:
    shown = [each for each in world.of(events.Publish, world.all) if each.msg_type == "stream"]
    return [json.loads(each.content)["text"] for each in shown]


def test_a_use_without_a_lease_is_told_in_the_cell_that_runs_once() -> None:
    world = governed()
    cell = world.execute()
    world.begin("r1", cell)
    assert look(world, ("g7", 3 * GB), times=LOOKS_MIN - 1) == [], "one look is no proof"
    said = look(world, ("g7", 3 * GB), times=5)
    assert len(said) == 1
    assert "r1 of this notebook has 3 GiB on g7 of host here without a lease" in said[0]


def test_between_cells_it_is_told_with_the_next() -> None:
    world = governed()
    assert look(world, ("g7", GB)) == []
    world.begin("r1", world.execute())
    assert "without a lease" in told(world)[0]


def test_a_lease_that_lingers_is_one_and_its_end_is_seen() -> None:
    world = governed()
    cell = compute(world)
    world.finish("r1", cell)
    assert look(world, ("g0", GB), times=5) == []
    world.lose("r1")
    world.ready("r1")
    assert look(world, ("g0", GB), times=1) == [], "the process before it is forgotten"


def test_a_look_at_the_process_before_it_is_none_at_a_new_one() -> None:
    world = governed(replicas=1)
    look(world, ("g7", GB), times=1)
    world.lose("r1")
    world.ready("r1")
    world.begin("r1", world.execute())
    assert look(world, ("g7", GB), times=1) == []
    assert len(look(world, ("g7", GB), times=1)) == 1


def test_looks_before_and_after_a_lease_are_not_in_a_row() -> None:
    world = governed(replicas=1)
    look(world, ("g0", GB), times=1)
    world.finish("r1", compute(world))
    look(world, ("g0", GB), times=1)
    world.scheduler(LeaseOver("lease-1", "somebody waits"))
    world.begin("r1", world.execute())
    before = told(world)
    assert look(world, ("g0", GB), times=1) == before
    assert "without a lease" in look(world, ("g0", GB), times=1)[-1]


def test_one_that_went_away_and_comes_again_is_told_again() -> None:
    world = governed()
    cell = world.execute()
    world.begin("r1", cell)
    look(world, ("g7", GB))
    look(world)
    assert len(look(world, ("g7", GB))) == 2


def test_without_a_scheduler_nobody_is_told() -> None:
    world = World().up()
    world.begin("r1", world.execute())
    assert look(world, ("g7", GB), times=5) == []


def test_more_memory_than_was_asked_for_is_told_once_a_lease() -> None:
    world = governed(gpus=GpuRequest(1, 2.0))
    cell = world.execute()
    world.grant(wish_of(cell), ("g0",))
    world.begin("r1", cell)
    assert look(world, ("g0", 2 * GB)) == []
    assert look(world, ("g0", 2 * GB + GB // 16)) == [], "allocators take memory in pieces"
    said = look(world, ("g0", 3 * GB))
    assert len(said) == 1
    assert "has 3 GiB on g0 and asked for 2 GiB" in said[0]


def test_the_memory_asked_for_is_a_limit_where_the_administrator_says_so() -> None:
    for limits, wanted in ((False, 0.0), (True, 2.0)):
        world = governed(gpus=GpuRequest(1, 2.0))
        world.leases._limits_vram = limits
        cell = world.execute()
        world.grant(wish_of(cell), ("g0",))
        assert world.envelope(cell).vram_gb == wanted


def test_who_takes_more_than_his_part_is_told_what_to_do_about_that() -> None:
    said = too_much("g0", 30 * GB, 20.0, part=True)
    assert "this notebook has 30 GiB on g0, and its part of it has 20 GiB" in said
    assert "Ask for a larger part, or for a whole GPU" in said
    assert "--vram GIB" in too_much("g0", 30 * GB, 20.0)
