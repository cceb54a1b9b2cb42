"""The desk notices who is gone: routers, kernels' processes, agents; and who is away only for a moment."""

from __future__ import annotations

import pytest
from replkernel_server.scheduling.desk_words import Left

from replkernel.leasing import wire
from tests.support.scheduler_client import offer
from tests.unit.scheduler.desk import ALICE, BOB, ROOT, Room


def leaves(room: Room, client: int) -> None:
    """End a connection without a word."""
    room.do(room.desk.handle(Left(client), room.now))


def lingering(room: Room, kernel: str, gpus: int = 1) -> tuple[int, wire.GrantedLease]:
    router = room.router(kernel)
    lease = room.lease(router, f"cell of {kernel}", gpus)
    room.say(router, wire.LeaseLingers(lease.lease, lease.fence))
    return router, lease


def has(room: Room, client: int) -> bool:
    return any(isinstance(said, wire.Granted) for said in room.heard[client])


def beat(room: Room, agent: int, gpu: str, *, kernels: tuple[str, ...] = (), held_gb: float = 0.0) -> None:
    room.say(agent, wire.HostBeat((wire.GpuUse(gpu, 0.0, held_gb, kernels),)))


def test_a_lease_lingering_for_a_router_that_is_gone_goes_to_who_waits() -> None:
    room = Room()
    room.agent("a", 1)
    router, _ = lingering(room, "k1")
    leaves(room, router)
    waits = room.router("k2")
    room.say(waits, wire.LeaseWish("r2", 1))
    room.wait(1.4)
    assert not has(room, waits)
    room.wait(0.2)
    assert has(room, waits)


def test_lingering_leases_go_though_asked_back_before_the_router_was_gone() -> None:
    room = Room()
    room.agent("a", 8)
    routers = [lingering(room, f"k{number}")[0] for number in range(8)]
    waits = room.router("other")
    room.say(waits, wire.LeaseWish("r", 8))
    assert isinstance(room.heard[routers[0]][-1], wire.LeaseWanted)
    for router in routers:
        leaves(room, router)
    room.wait(1.6)
    assert has(room, waits)


def test_a_router_that_returns_in_time_keeps_what_lingers() -> None:
    room = Room()
    room.agent("a", 1)
    router, lease = lingering(room, "k")
    leaves(room, router)
    room.wait(1.4)
    again = room.join("router", "k")
    held = (wire.HeldLease(lease.lease, lease.fence),)
    room.say(again, wire.KernelHere(("a",), leases=held))  # type: ignore[arg-type]
    room.wait(60.0)
    assert [entry.phase for entry in room.core.view().leases] == ["lingering"]


def test_gpus_on_which_something_lies_yet_are_kept_until_they_are_seen_empty() -> None:
    room = Room()
    agent = room.agent("a", 1)
    beat(room, agent, "GPU-a-0", kernels=("k1",), held_gb=12.0)
    router, _ = lingering(room, "k1")
    leaves(room, router)
    waits = room.router("k2")
    room.say(waits, wire.LeaseWish("r2", 1))
    for use in ({"kernels": ("k1",)}, {"held_gb": 12.0}):
        room.wait(1.0)
        beat(room, agent, "GPU-a-0", **use)  # type: ignore[arg-type]
        assert not has(room, waits)
    room.wait(1.0)
    assert not has(room, waits), "nobody has seen them empty"
    beat(room, agent, "GPU-a-0")
    assert has(room, waits), "at once"


def test_a_part_is_kept_while_memory_is_in_use_that_no_kernel_is_named_for() -> None:
    room = Room()
    agent = room.agent("a", 1)
    router = room.router("k1")
    room.say(router, wire.LeaseWish("r1", 1, part=0.5))
    lease = room.heard[router][-1].lease  # type: ignore[union-attr]
    room.say(router, wire.LeaseLingers(lease.lease, lease.fence))
    leaves(room, router)
    waits = room.router("k2")
    room.say(waits, wire.LeaseWish("r2", 1))
    for use in ({"kernels": ("k1", "k3")}, {"held_gb": 12.0}):
        room.wait(1.0)
        beat(room, agent, "GPU-a-0", **use)  # type: ignore[arg-type]
        assert not has(room, waits)
    room.wait(1.0)
    beat(room, agent, "GPU-a-0", kernels=("k3",), held_gb=12.0)
    assert has(room, waits), "what is left there is another's"


def test_a_beat_from_before_the_router_left_proves_nothing() -> None:
    room = Room()
    agent = room.agent("a", 1)
    router, _ = lingering(room, "k1")
    beat(room, agent, "GPU-a-0")
    leaves(room, router)
    waits = room.router("k2")
    room.say(waits, wire.LeaseWish("r2", 1))
    room.wait(1.9)
    assert not has(room, waits)
    beat(room, agent, "GPU-a-0")
    assert has(room, waits)


def test_a_cell_that_computes_keeps_its_lease_while_its_router_is_away() -> None:
    room = Room()
    agent = room.agent("a", 1)
    router = room.router("k1")
    room.lease(router, "r1")
    leaves(room, router)
    for _ in range(5):
        room.wait(2.0)
        beat(room, agent, "GPU-a-0")
    assert [entry.phase for entry in room.core.view().leases] == ["active"]


@pytest.mark.parametrize("first", ["the agent", "the connection"])
def test_a_cells_lease_ends_at_once_when_the_agent_says_that_no_process_is_left(first: str) -> None:
    room = Room()
    agent = room.agent("a", 1)
    router, waits = room.router("k1"), room.router("k2")
    room.lease(router, "r1")
    room.say(waits, wire.LeaseWish("r2", 1))
    if first == "the agent":
        room.say(agent, wire.KernelLeft("k1"))
        assert not has(room, waits), "its router gives back itself"
        leaves(room, router)
    else:
        leaves(room, router)
        room.say(agent, wire.KernelLeft("k1"))
    assert has(room, waits)


def test_an_agents_word_of_a_kernel_counts_no_more_once_it_is_there_again() -> None:
    room = Room()
    agent = room.agent("a", 1)
    router = room.router("k")
    room.say(agent, wire.KernelLeft("k"))
    room.say(router, wire.KernelHere(("a",)))  # type: ignore[arg-type]
    room.lease(router, "r1")
    leaves(room, router)
    assert len(room.core.view().leases) == 1


def test_an_agents_word_from_before_a_cell_does_not_end_its_lease() -> None:
    room = Room()
    agent = room.agent("a", 1)
    router = room.router("k")
    room.say(agent, wire.KernelLeft("k"))
    room.lease(router, "r1")
    leaves(room, router)
    room.wait(2.0)
    assert [entry.phase for entry in room.core.view().leases] == ["active"]


def test_nobodys_agent_ends_another_users_leases() -> None:
    room = Room()
    room.agent("a", 1, ALICE)
    other = room.agent("b", 1, BOB)
    router = room.router("k1")
    room.lease(router, "r1")
    leaves(room, router)
    room.say(other, wire.KernelLeft("k1"))
    assert len(room.core.view().leases) == 1


def test_the_wish_of_a_router_that_does_not_return_holds_nobody_up() -> None:
    room = Room()
    room.agent("a", 2)
    holder = room.router("holder")
    lease = room.lease(holder, "r0", 1)
    dead, waits = room.router("dead"), room.router("k2")
    room.say(dead, wire.LeaseWish("large", 2))
    room.say(waits, wire.LeaseWish("small", 1))
    assert not has(room, waits)
    leaves(room, dead)
    room.wait(1.6)
    assert has(room, waits)
    room.say(holder, wire.LeaseBack(lease.lease, lease.fence))
    assert len(room.core.view().leases) == 1


def test_a_grant_that_nobody_heard_goes_to_the_next() -> None:
    room = Room()
    room.agent("a", 1)
    holder, dead, waits = room.router("holder"), room.router("dead"), room.router("k2")
    lease = room.lease(holder, "r0", 1)
    room.say(dead, wire.LeaseWish("r1", 1))
    room.say(waits, wire.LeaseWish("r2", 1))
    leaves(room, dead)
    room.say(holder, wire.LeaseBack(lease.lease, lease.fence))
    assert not has(room, waits)
    room.wait(1.6)
    assert has(room, waits)


def test_an_agent_that_is_started_anew_ends_no_cell_and_its_host_is_listed_as_down_meanwhile() -> None:
    room = Room()
    agent, router = room.agent("a", 1, ROOT), room.router("k")
    lease = room.lease(router, "r1")
    room.say(agent, wire.HostLeaves())
    leaves(room, agent)
    assert [host.state for host in room.core.view().hosts] == ["down"]
    room.wait(200.0)
    assert isinstance(room.say(router, wire.LeaseKept(lease.lease, lease.fence))[0], wire.Granted)
    room.agent("a", 1, ROOT)
    assert room.hosts() == ["a"] and len(room.core.view().leases) == 1


def test_a_host_that_stays_away_is_forgotten_with_its_leases() -> None:
    room = Room()
    agent, router = room.agent("a", 1, ROOT), room.router("k")
    lease = room.lease(router, "r1")
    room.say(agent, wire.HostLeaves())
    room.wait(299.0)
    assert room.heard[router][-1] != wire.LeaseOver(lease.lease, "host down")
    room.wait(2.0)
    assert room.heard[router][-1] == wire.LeaseOver(lease.lease, "host down")
    assert room.core.view().hosts == ()


def test_an_agent_that_returns_with_other_gpus_or_another_name_replaces_its_old_record_at_once() -> None:
    room = Room()
    agent = room.agent("a", 2)
    router = room.router("k")
    room.lease(router, "r1")
    leaves(room, agent)
    room.wait(7.0)
    agent = room.agent("a", 1)
    assert [len(host.gpus) for host in room.core.view().hosts] == [1]
    room.say(agent, wire.HostLeaves())
    moved = room.join("agent", "b")
    said = room.say(moved, offer("a", 1))
    assert said == [] and room.hosts() == ["b"]


def test_a_host_that_was_away_when_the_scheduler_was_started_anew_has_its_time_yet() -> None:
    room = Room()
    agent, router = room.agent("a", 1, ROOT), room.router("k")
    room.lease(router, "r1")
    room.say(agent, wire.HostLeaves())
    room.restart(20.0)
    assert room.say(room.router("k"), wire.LeaseWish("r2", 1)) == [wire.Waiting("r2", 0)]
    room.wait(100.0)
    assert [host.state for host in room.core.view().hosts] == ["down"]
