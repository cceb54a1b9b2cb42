"""A new kernel's replicas by its request: the limit, hosts on their way, hosts it cannot use, its router."""

from __future__ import annotations

import msgspec
from replkernel_scheduler.effects import Effect, KernelPending, KernelPlaced, KernelRefused, ProvisionHost
from replkernel_scheduler.events import (
    HostNotProvisioned,
    KernelEnded,
    KernelReported,
    KernelStarted,
    TimeReached,
)
from replkernel_scheduler.policies.installed import policies
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import HostName, HostShape, KernelId, KernelSpec, ReservationId, UserName
from replkernel_server.scheduling import placement
from replkernel_server.scheduling.desk_words import KernelAwaited
from replkernel_server.scheduling.documents import KernelAwaits, KernelPlacement, PlacementBody, Why

from replkernel.leasing import wire
from replkernel.records import HostName as Place
from tests.unit.scheduler.cluster import Cluster, of
from tests.unit.scheduler.desk import ALICE, BOB, Room

K = KernelId("k")


def spec(name: str = "k", gpus: int = 1, replicas: int = 1, **more: float) -> KernelSpec:
    return KernelSpec(KernelId(name), UserName("alice"), gpus, replicas, **more)  # type: ignore[arg-type]


def start(cluster: Cluster, asked: KernelSpec) -> list[Effect]:
    return cluster.feed(KernelStarted(asked))


def hosts_of(cluster: Cluster, name: str = "k") -> tuple[str, ...]:
    found = cluster.core.placement_of(KernelId(name))
    return () if found is None else found.hosts


def limited(settings: CoreSettings | None = None) -> Cluster:
    """Two hosts of 4 and 3 GPUs, which take 1.5 as many subscriptions."""
    cluster = Cluster(policies("notebook", limit="static"), settings)
    cluster.host("a", 4, cpu=16.0, memory_gb=64.0)
    cluster.host("b", 3, cpu=8.0, memory_gb=32.0)
    return cluster


def test_the_limit_sends_a_kernel_to_a_host_with_fewer_idle_gpus() -> None:
    cluster = limited()
    start(cluster, spec("one", 4))
    start(cluster, spec("two", 3))
    assert (hosts_of(cluster, "one"), hosts_of(cluster, "two")) == (("a",), ("b",))
    free = Cluster(policies("notebook"))
    free.host("a", 4)
    free.host("b", 3)
    start(free, spec("one", 4))
    start(free, spec("two", 3))
    assert hosts_of(free, "two") == ("a",)


def test_cores_and_memory_count_as_gpus_do() -> None:
    cluster = limited()
    start(cluster, spec("one", 0, cpu=8.0))
    start(cluster, spec("two", 0, memory_gb=48.0))
    assert hosts_of(cluster, "two") == ("a",)
    start(cluster, spec("three", 1, cpu=16.5))
    assert isinstance(start(cluster, spec("four", 1, cpu=17.0))[-1], KernelRefused)
    start(cluster, spec("five", 1, memory_gb=50.0))
    assert hosts_of(cluster, "five") == ()
    start(cluster, spec("six", 1, memory_gb=20.0))
    assert hosts_of(cluster, "six") == ("a",)


def test_hosts_that_its_router_does_not_reach_are_none_for_it() -> None:
    cluster = limited()
    start(cluster, msgspec.structs.replace(spec("k", 2), without=(HostName("a"),)))
    assert hosts_of(cluster) == ("b",)


def test_kernels_that_ask_for_nothing_are_spread_though_they_leave_no_mark() -> None:
    cluster = Cluster()
    for name in "abcdef":
        cluster.host(name, 4)
    for number in range(4):
        start(cluster, spec(f"k{number}", 0, 3))
    used = [host for number in range(4) for host in hosts_of(cluster, f"k{number}")]
    assert {used.count(name) for name in "abcdef"} == {2}


def scaling() -> Cluster:
    shape = HostShape(4)
    return limited(CoreSettings(host_shape=shape, hosts_min=0, hosts_max=4))


def test_a_kernel_without_room_waits_for_a_host_that_keeps_its_share() -> None:
    cluster = scaling()
    start(cluster, spec("one", 4))
    start(cluster, spec("two", 3))
    effects = start(cluster, spec("k", 4))
    assert [made.reservation for made in of(ProvisionHost, effects)] == ["host-1"]
    assert of(KernelPending, effects) == [KernelPending(K, 1)]
    waits = cluster.core.placement_of(K)
    assert waits is not None and (waits.hosts, waits.missing, waits.coming) == ((), 1, 1)
    start(cluster, spec("behind", 4))  # It finds no room beside the first one's share.
    behind = cluster.core.placement_of(KernelId("behind"))
    assert behind is not None and behind.coming == 1
    placed = of(KernelPlaced, cluster.host("new", 4, reservation="host-1"))
    assert placed == [KernelPlaced(K, (HostName("new"),))]


def test_its_router_takes_it_over_where_it_was_placed_and_keeps_its_subscription() -> None:
    cluster = limited()
    asked = spec("k", 3, cpu=2.0)
    start(cluster, asked)
    assert hosts_of(cluster) == ("a",)
    cluster.feed(KernelReported(asked, (), moves=True))
    cluster.feed(KernelReported(asked, (HostName("a"),), moves=True))
    known = cluster.core.placement_of(K)
    assert known is not None and (known.hosts, known.reported, known.spec.cpu) == (("a",), True, 2.0)
    start(cluster, spec("next", 4))
    assert hosts_of(cluster, "next") == ()
    cluster.feed(KernelEnded(K))
    assert hosts_of(cluster, "next") == ("a",)


def test_a_router_that_waited_long_enough_begins_elsewhere_and_what_comes_later_is_not_for_it() -> None:
    cluster = scaling()
    start(cluster, spec("one", 4))
    start(cluster, spec("two", 3))
    start(cluster, spec("k", 4))
    effects = cluster.feed(KernelReported(spec("k", 4), (HostName("b"),)))
    assert not of(KernelPlaced, effects)
    came = cluster.host("new", 4, reservation="host-1")
    assert not of(KernelPlaced, came) and hosts_of(cluster) == ("b",)
    assert not cluster.feed(HostNotProvisioned(ReservationId("host-1")))
    cluster.feed(TimeReached())


# -- what the service makes of it ---------------------------------------------------------------------


def test_a_placement_asked_again_is_no_event_and_one_that_begins_anew_ends_first() -> None:
    cluster = limited()
    body = PlacementBody(gpus=3, replicas=1, gpu_model="NVIDIA h100", cpu=2.0, without=["c"])
    asked = placement.spec_of(K, UserName("alice"), body)
    assert (asked.gpu_model, asked.without) == ("H100", ("c",))
    asked = spec("k", 3)
    known = cluster.core.placement_of(K)
    assert placement.events(asked, known, is_here=False) == [KernelStarted(asked)]
    assert placement.answer(known, [KernelRefused(K, "No.")]) == (409, Why("No."))
    assert placement.answer(known, [])[0] == 410
    start(cluster, asked)
    known = cluster.core.placement_of(K)
    assert placement.events(asked, known, is_here=False) == []
    other = spec("k", 2)
    assert placement.events(other, known, is_here=False) == [KernelEnded(K), KernelStarted(other)]
    assert placement.answer(known, []) == (200, KernelPlacement(["a"]))
    cluster.feed(KernelReported(asked, (HostName("a"),)))
    known = cluster.core.placement_of(K)
    assert placement.events(asked, known, is_here=True) == []
    assert placement.events(asked, known, is_here=False) == [KernelEnded(K), KernelStarted(asked)]
    start(cluster, spec("full", 4))
    assert placement.answer(cluster.core.placement_of(KernelId("full")), []) == (202, KernelAwaits(1, 0))


def placed(room: Room, name: str = "k", gpus: int = 1) -> None:
    room.feed(KernelStarted(spec(name, gpus)))
    room.do(room.desk.handle(KernelAwaited(name, UserName("alice")), room.now))


def test_a_kernel_whose_router_does_not_come_is_over_and_one_that_is_asked_about_is_kept() -> None:
    room = Room()
    room.agent("a", 2)
    placed(room)
    room.wait(50.0)
    room.do(room.desk.handle(KernelAwaited("k", UserName("alice")), room.now))
    room.wait(50.0)
    assert room.core.placement_of(K) is not None
    room.wait(15.0)
    assert room.core.placement_of(K) is None and room.fed.count(KernelEnded(K)) == 1


def test_its_router_goes_on_with_what_it_was_placed_for() -> None:
    room = Room()
    room.agent("a", 2)
    placed(room, gpus=2)
    assert room.desk.kernels.unclaimed_by(UserName("alice")) == 1
    assert "another user's" in room.closed.get(room.join("router", "k", BOB), "")
    router = room.join("router", "k", ALICE)
    room.say(router, wire.KernelHere((Place("a"),), 2, cpu=4.0, memory_gb=17.2))
    assert room.desk.kernels.unclaimed_by(UserName("alice")) == 0
    known = room.core.placement_of(K)
    assert known is not None and known.reported
    assert (known.spec.gpus, known.spec.cpu, known.spec.memory_gb) == (2, 4.0, 17.2)
    assert isinstance(room.say(router, wire.LeaseWish("r", 2))[0], wire.Granted)


def test_a_restarted_scheduler_gives_the_router_of_a_placed_kernel_its_time() -> None:
    room = Room()
    room.agent("a", 2)
    placed(room)
    room.restart(30.0)
    room.wait(40.0)
    assert room.core.placement_of(K) is not None
    room.wait(30.0)
    assert room.core.placement_of(K) is None
