"""The dead hold nothing, and who is only out of sight keeps what it has."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, LeaseQueued, LeaseRefused, LeaseUnknown
from replkernel_scheduler.events import HolderGone, HostAway, HostDown, LeaseRenewed
from replkernel_scheduler.types import Fence, HostName

from tests.unit.scheduler.cluster import Cluster, granted, of

A = HostName("a")


def test_a_lease_that_lingers_ends_with_its_holder_and_who_waits_is_served_by_that_event() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one", kernel="k1"))
    cluster.linger(lease)
    cluster.ask("two", kernel="k2")
    effects = cluster.feed(HolderGone(lease.lease, lease.fence))
    assert of(LeaseEnded, effects) == [LeaseEnded(cluster_lease(effects, lease), "holder gone")]
    assert granted(effects).kernel_id == "k2"


def cluster_lease(effects: list[object], lease: object) -> object:
    return next((e.lease for e in effects if isinstance(e, LeaseEnded)), lease)


@pytest.mark.parametrize(("ended", "left"), [(False, ["active"]), (True, [])])
def test_a_cell_that_runs_loses_its_lease_only_when_its_processes_have_ended(
    ended: bool, left: list[str]
) -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one", kernel="k1"))
    cluster.feed(HolderGone(lease.lease, lease.fence, ended))
    assert cluster.phases() == left


def test_a_holder_that_is_gone_twice_or_with_another_fence_changes_nothing() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one", kernel="k1"))
    assert of(LeaseUnknown, cluster.feed(HolderGone(lease.lease, Fence(lease.fence - 1), True)))
    assert cluster.phases() == ["active"]
    cluster.feed(HolderGone(lease.lease, lease.fence, True))
    assert of(LeaseUnknown, cluster.feed(HolderGone(lease.lease, lease.fence, True)))


def test_a_host_that_is_out_of_sight_keeps_its_leases_is_listed_as_down_and_takes_nothing_new() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    runs, rests = granted(cluster.ask("runs", kernel="k1")), granted(cluster.ask("rests", kernel="k2"))
    cluster.linger(rests)
    assert of(LeaseEnded, cluster.feed(HostAway(A))) == []
    assert [(host.name, host.state) for host in cluster.core.view().hosts] == [("a", "down")]
    assert of(LeaseGranted, cluster.feed(LeaseRenewed(runs.lease, runs.fence)))
    effects = cluster.ask("new", kernel="k3", hosts="a")
    assert of(LeaseQueued, effects) and not of(LeaseGranted, effects)
    cluster.linger(runs)
    assert cluster.phases() == ["lingering", "lingering"], "its state lies there all the same"
    assert cluster.waiting() == ["new"]
    effects = cluster.host("a", 2)
    assert [host.state for host in cluster.core.view().hosts] == ["up"]
    cluster.release(rests)
    assert [lease.kernel_id for lease in cluster.leases()] == ["k1", "k3"]


def test_a_request_for_any_host_waits_for_one_that_may_come_back_and_is_refused_when_it_does_not() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.feed(HostAway(A))
    assert of(LeaseQueued, cluster.ask("new"))
    assert granted(cluster.host("a", 1)).request == "new"
    cluster.feed(HostAway(A))
    cluster.ask("newer")
    effects = cluster.feed(HostDown(A))
    assert [ended.why for ended in of(LeaseEnded, effects)] == ["host down"]
    assert of(LeaseRefused, effects)
    assert cluster.core.view().hosts == ()


def test_a_host_that_comes_back_with_other_gpus_has_those_at_once() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    first, second = granted(cluster.ask("one", kernel="k1")), granted(cluster.ask("two", kernel="k2"))
    cluster.feed(HostAway(A))
    effects = cluster.host("a", 1)
    assert of(LeaseEnded, effects) == [LeaseEnded(second, "gpu gone")]
    assert [lease.lease for lease in cluster.leases()] == [first.lease]
    assert [host.state for host in cluster.core.view().hosts] == ["up"]


def test_a_host_that_is_being_emptied_stays_so_when_it_is_out_of_sight() -> None:
    from replkernel_scheduler.events import HostDrained

    cluster = Cluster()
    cluster.host("a", 1)
    granted(cluster.ask("one", kernel="k1"))
    cluster.feed(HostDrained(A))
    cluster.feed(HostAway(A))
    cluster.host("a", 1)
    assert [host.state for host in cluster.core.view().hosts] == ["draining"]
