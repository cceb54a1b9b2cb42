"""Kernels that place themselves and move a replica when they are told to."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import (
    Effect,
    LeaseQueued,
    LeaseRefused,
    MigrationFailed,
    MoveRefused,
    ReclaimLease,
    ReleaseHost,
    ReplicaMoved,
    StartReplica,
    StopReplica,
)
from replkernel_scheduler.events import (
    HostAway,
    HostDown,
    HostDrained,
    HostUndrained,
    KernelEnded,
    KernelPinned,
    KernelReported,
    LeaseRenewed,
    LeaseWithdrawn,
    MoveAsked,
    QuotaSet,
    ReplicaFailed,
    ReplicaReady,
    TimeReached,
)
from replkernel_scheduler.policies.installed import policies
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, Lease, RequestId, UserName, UserQuota

from tests.unit.scheduler.cluster import Cluster, granted, of

K = KernelId("k")
D = HostName("d")


def report(
    cluster: Cluster, hosts: str, gpus: int = 0, *, moves: bool = True, executor: str = "a"
) -> list[Effect]:
    spec = KernelSpec(K, UserName(""), gpus, max(1, len(hosts.split())))
    names = tuple(HostName(host) for host in hosts.split())
    return cluster.feed(KernelReported(spec, names, moves, HostName(executor) if executor else None))


def without_gpus(d: int = 4, executor: str = "a") -> Cluster:
    """Return a cluster whose kernel is on a, b, c, which have no GPUs; d has some."""
    cluster = Cluster()
    for name in "abc":
        cluster.host(name, 0)
    if d:
        cluster.host("d", d)
    report(cluster, "a b c", executor=executor)
    return cluster


def started(effects: list[Effect]) -> StartReplica:
    (start,) = of(StartReplica, effects)
    return start


@pytest.mark.parametrize("executor", ["a", "b", "c"])
def test_a_replica_moves_to_the_gpus_and_never_the_one_that_ran_last(executor: str) -> None:
    cluster = without_gpus(executor=executor)
    effects = cluster.ask("cell", 2, kernel="k")
    start = started(effects)
    assert (start.host, start.attempt) == ("d", 1)
    assert start.source in set("abc") - {executor}
    assert of(LeaseQueued, effects)[-1] == LeaseQueued(RequestId("cell"), 0)
    effects = cluster.feed(ReplicaReady(start.migration))
    assert of(ReplicaMoved, effects) == [ReplicaMoved(start.migration, K, D, start.source)]
    assert granted(effects).host == "d"
    left = " ".join(sorted(set("abcd") - {start.source}))
    assert report(cluster, left, executor=executor) == []


def test_one_that_does_not_move_is_refused_what_its_hosts_have_not() -> None:
    cluster = without_gpus()
    report(cluster, "a b c", moves=False)
    (refused,) = of(LeaseRefused, cluster.ask("cell", 2, kernel="k"))
    assert "No host of a, b, c has 2 GPUs" in refused.why


def test_more_than_any_host_has_is_refused_at_once() -> None:
    (refused,) = of(LeaseRefused, without_gpus().ask("cell", 8, kernel="k"))
    assert refused.why == "No host has 8 GPUs; the largest possible request is 4 GPUs."


def test_a_move_waits_for_a_busy_host_and_has_it_as_soon_as_it_is_free() -> None:
    cluster = without_gpus(2)
    held = granted(cluster.ask("other", 2, 1e5, hosts="d", kernel="o"))
    assert not of(StartReplica, cluster.ask("cell", 2, kernel="k"))
    for _ in range(60):
        assert not of(LeaseRefused, cluster.feed(TimeReached(), after_s=20.0))
    assert cluster.waiting() == ["cell"]
    assert started(cluster.release(held)).host == "d"


def test_gpus_that_merely_linger_elsewhere_are_asked_back_for_it() -> None:
    cluster = without_gpus(2)
    held = granted(cluster.ask("other", 2, hosts="d", kernel="o"))
    cluster.linger(held)
    effects = cluster.ask("cell", 2, kernel="k")
    assert [effect.lease.lease for effect in of(ReclaimLease, effects)] == [held.lease]
    assert started(cluster.release(held)).host == "d"


def test_gpus_that_linger_elsewhere_are_asked_back_by_the_memory_that_they_are_sold_with() -> None:
    cluster = without_gpus(0)
    cluster.host("d", 2, "H100", 79.1)
    held = granted(cluster.ask("other", 2, hosts="d", kernel="o"))
    cluster.linger(held)
    effects = cluster.ask("cell", 2, kernel="k", model="H100", vram_gb=80.0)
    assert [effect.lease.lease for effect in of(ReclaimLease, effects)] == [held.lease]


def test_who_looks_longest_is_first_and_nobody_passes_a_claim() -> None:
    cluster = without_gpus(2)
    held = granted(cluster.ask("other", 2, hosts="d", kernel="o"))
    cluster.ask("resident", 2, hosts="d", kernel="p")
    cluster.ask("cell", 2, kernel="k")
    effects = cluster.release(held)
    assert granted(effects).request == "resident"
    assert not of(StartReplica, effects)


def counting_on_what_lingers() -> tuple[Cluster, Lease]:
    """Return a cluster whose kernel, on a alone, waits for what lingers there; d is idle."""
    cluster = Cluster()
    cluster.host("a", 1)
    held = granted(cluster.ask("other", hosts="a", kernel="o"))
    cluster.linger(held)
    cluster.host("d", 1)
    report(cluster, "a", 1)
    effects = cluster.ask("cell", kernel="k")
    assert of(ReclaimLease, effects) and not of(StartReplica, effects), "what lingers is to serve it"
    return cluster, held


def test_a_cell_is_moved_when_somebody_before_it_takes_the_gpus_that_it_had_counted_on() -> None:
    cluster, held = counting_on_what_lingers()
    cluster.feed(QuotaSet(UserName("first"), UserQuota(priority=5)))
    assert started(cluster.ask("first", hosts="a", user="first")).host == "d"
    assert granted(cluster.release(held)).request == "first"


def test_a_cell_is_moved_when_state_cannot_leave_the_gpus_that_it_had_counted_on() -> None:
    cluster, held = counting_on_what_lingers()
    effects = cluster.feed(LeaseRenewed(held.lease, held.fence, stays=True))
    assert started(effects).host == "d"


def test_a_cell_does_not_count_on_gpus_that_state_is_known_not_to_leave() -> None:
    cluster, held = counting_on_what_lingers()
    start = started(cluster.feed(LeaseRenewed(held.lease, held.fence, stays=True)))
    cluster.feed(ReplicaReady(start.migration))
    cluster.host("e", 1)
    spec = KernelSpec(KernelId("next"), gpus=1, replicas=1)
    cluster.feed(KernelReported(spec, (HostName("a"),), True, None))
    assert started(cluster.ask("next", kernel="next")).host == "e"


def test_a_kernel_whose_state_cannot_leave_has_others_asked_for_what_it_needs_beside() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    held = granted(cluster.ask("held", hosts="a", kernel="k"))
    other = granted(cluster.ask("other", hosts="a", kernel="o"))
    cluster.linger(held)
    cluster.ask("wants", hosts="a", kernel="w")
    cluster.feed(LeaseRenewed(held.lease, held.fence, stays=True))
    cluster.feed(LeaseWithdrawn(RequestId("wants")))
    cluster.linger(other)
    effects = cluster.ask("cell", 2, hosts="a", kernel="k")
    assert [effect.lease.lease for effect in of(ReclaimLease, effects)] == [other.lease]
    assert granted(cluster.release(other)).request == "cell"


def test_a_cell_that_came_while_its_owner_moved_the_kernel_is_moved_when_that_fails() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.host("d", 0)
    cluster.host("e", 1)
    granted(cluster.ask("other", hosts="a", ttl_s=1000.0))
    report(cluster, "a")
    move = started(cluster.feed(MoveAsked(K, D)))
    cluster.ask("cell", kernel="k")
    assert started(cluster.feed(ReplicaFailed(move.migration, "no room"))).host == "e"


def test_a_failed_move_is_taken_back_told_and_made_to_another_host() -> None:
    cluster = without_gpus()
    first = started(cluster.ask("cell", 2, kernel="k"))
    cluster.host("e", 4)
    effects = cluster.feed(ReplicaFailed(first.migration, "host d has no agent here"))
    assert of(StopReplica, effects) == [StopReplica(K, D)]
    assert of(LeaseQueued, effects)[-1].position == 1, "it is told where it stands again"
    cluster.now = cluster.core.deadline() or 0.0
    second = started(cluster.feed(TimeReached(), after_s=0.0))
    assert (second.host, second.attempt) == ("e", 2)


def test_five_moves_that_fail_are_enough() -> None:
    cluster = without_gpus()
    effects = cluster.ask("cell", 2, kernel="k")
    for _ in range(4):
        cluster.feed(ReplicaFailed(started(effects).migration, "no room"))
        cluster.now = cluster.core.deadline() or 0.0
        effects = cluster.feed(TimeReached(), after_s=0.0)
    effects = cluster.feed(ReplicaFailed(started(effects).migration, "no room"))
    assert [effect.why for effect in of(MigrationFailed, effects)] == ["Kernel k was not moved: no room."]
    assert [effect.why for effect in of(LeaseRefused, effects)] == ["Kernel k was not moved: no room."]


def test_a_target_that_dies_is_waited_for_until_another_comes() -> None:
    cluster = without_gpus()
    start = started(cluster.ask("cell", 2, kernel="k"))
    effects = cluster.feed(HostDown(D))
    assert of(StopReplica, effects) == [StopReplica(K, D)], "its router is told"
    assert cluster.waiting() == ["cell"]
    for _ in range(40):
        assert not of(LeaseRefused, cluster.feed(TimeReached(), after_s=20.0))
    again = started(cluster.host("e", 2))
    assert (again.migration, again.host) == (start.migration, "e")


def test_a_cell_that_is_interrupted_takes_its_move_back() -> None:
    cluster = without_gpus()
    start = started(cluster.ask("cell", 2, kernel="k"))
    assert of(StopReplica, cluster.feed(LeaseWithdrawn(RequestId("cell")))) == [StopReplica(K, D)]
    assert not cluster.core.view().migrations
    assert cluster.feed(ReplicaReady(start.migration)) == []
    assert report(cluster, "a b d") == [], "the router was past the point where it could turn back"


def test_an_answer_that_got_lost_is_read_from_where_the_kernel_is() -> None:
    cluster = without_gpus()
    start = started(cluster.ask("cell", 2, kernel="k"))
    left = " ".join(sorted({"a", "b", "c", "d"} - {start.source}))
    effects = report(cluster, left)
    assert granted(effects).host == "d"
    assert cluster.core.view().kernels[0].hosts == tuple(left.split()) or set(
        cluster.core.view().kernels[0].hosts
    ) == set(left.split())


def test_a_kernels_request_may_change_while_it_moves() -> None:
    cluster = without_gpus()
    start = started(cluster.ask("cell", 2, kernel="k"))
    report(cluster, "a b c", gpus=2)
    cluster.feed(ReplicaFailed(start.migration, "no room"))
    assert {host.name: host.subscribed for host in cluster.core.view().hosts}["d"] == 0


def test_the_first_cell_goes_where_the_last_one_ran() -> None:
    for executor in "ab":
        cluster = Cluster()
        cluster.host("a", 2)
        cluster.host("b", 4)
        report(cluster, "a b", executor=executor)
        assert granted(cluster.ask("cell", 1, kernel="k")).host == executor


# -- a move that the owner wants -----------------------------------------------------------------------


def test_the_owner_names_the_host() -> None:
    cluster = without_gpus(0)
    cluster.host("d", 0)
    start = started(cluster.feed(MoveAsked(K, D)))
    assert start.host == "d"
    assert start.source in "bc"
    effects = cluster.feed(ReplicaReady(start.migration))
    assert of(ReplicaMoved, effects) == [ReplicaMoved(start.migration, K, D, start.source)]


def test_a_wanted_move_that_fails_is_not_made_elsewhere() -> None:
    cluster = without_gpus()
    cluster.host("e", 4)
    start = started(cluster.feed(MoveAsked(K, D)))
    (failed,) = of(MigrationFailed, cluster.feed(ReplicaFailed(start.migration, "no room")))
    assert failed.why == "Kernel k was not moved: no room."
    assert not cluster.core.view().migrations


@pytest.mark.parametrize(
    ("host", "why"),
    [("nowhere", "no host nowhere is up"), ("a", "one is on a already"), ("d", "choose another host")],
)
def test_why_a_wanted_move_is_refused(host: str, why: str) -> None:
    cluster = without_gpus(1)
    report(cluster, "a b c", gpus=40)
    (refused,) = of(MoveRefused, cluster.feed(MoveAsked(K, HostName(host))))
    assert why in refused.why


def test_a_kernel_that_cannot_travel_keeps_its_host() -> None:
    cluster = Cluster()
    cluster.host("a", 0)
    cluster.host("d", 2)
    report(cluster, "a")
    cluster.feed(KernelPinned(K, HostName("a")))
    (refused,) = of(MoveRefused, cluster.feed(MoveAsked(K, D)))
    assert "pinned" in refused.why


def test_a_drained_hosts_replica_moves_where_there_is_a_host_without_one_and_the_host_is_released() -> None:
    cluster = without_gpus(0)
    b = HostName("b")
    assert cluster.core.draining_awaits(b) == {}
    assert cluster.feed(HostDrained(b)) == [], "there is nowhere to go"
    (why,) = cluster.core.draining_awaits(b)
    assert why.startswith("replica: no other host")
    start = started(cluster.host("d", 2))
    assert (start.host, start.source) == ("d", "b")
    assert cluster.core.draining_awaits(b) == {"replica: on its way to d": 1}
    effects = cluster.feed(ReplicaReady(start.migration))
    assert of(StopReplica, effects) == [StopReplica(K, HostName("b"))]
    assert of(ReleaseHost, effects) == [ReleaseHost(HostName("b"))]


def test_a_drained_hosts_replica_moves_once_its_router_can_move_it() -> None:
    cluster = without_gpus()
    report(cluster, "a b c", moves=False)
    assert cluster.feed(HostDrained(HostName("b"))) == []
    assert cluster.core.draining_awaits(HostName("b")) == {
        "replica: its kernel cannot move it: until that ends": 1
    }
    assert started(report(cluster, "a b c")).source == "b"


def test_a_drained_hosts_replica_moves_to_a_host_that_is_used_again() -> None:
    cluster = without_gpus(0)
    cluster.host("d", 0)
    for name in "db":
        cluster.feed(HostDrained(HostName(name)))
    assert started(cluster.feed(HostUndrained(D))).source == "b"


def test_a_drained_hosts_replica_moves_to_a_host_that_is_back_as_it_was() -> None:
    cluster = without_gpus(2)
    cluster.feed(HostAway(D))
    assert cluster.feed(HostDrained(HostName("b"))) == []
    start = started(cluster.host("d", 2))
    assert (start.host, start.source) == ("d", "b")
    assert cluster.host("d", 2) == [], "it was not away"


def test_a_drained_hosts_replica_moves_where_kernels_have_ended() -> None:
    cluster = Cluster(policies("notebook", limit="static"))
    for name in "ad":
        cluster.host(name, 2)
    cluster.kernel("other", gpus=2, replicas=1, hosts="d")
    report(cluster, "a", 2)
    assert cluster.feed(HostDrained(HostName("a"))) == [], "another kernel has all that d is good for"
    assert started(cluster.feed(KernelEnded(KernelId("other")))).host == "d"


def test_a_router_that_moves_nothing_leaves_the_drained_host_draining() -> None:
    cluster = without_gpus(2)
    effects = cluster.feed(HostDrained(HostName("b")))
    for _ in range(30):
        for start in of(StartReplica, effects):
            effects = cluster.feed(ReplicaFailed(start.migration, "it holds variables that cannot travel"))
        if of(MigrationFailed, effects):
            break
        effects = cluster.feed(TimeReached(), after_s=60.0)
    assert of(MigrationFailed, effects)
    states = {host.name: host.state for host in cluster.core.view().hosts}
    assert states["b"] == "draining"
