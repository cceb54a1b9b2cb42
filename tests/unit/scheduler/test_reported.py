"""Kernels that place themselves: the scheduler takes note of where they are, and places and moves nothing."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import (
    Effect,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    ReleaseHost,
)
from replkernel_scheduler.errors import UnexpectedEvent
from replkernel_scheduler.events import HostDown, HostDrained, KernelEnded, KernelReported, TimeReached
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, UserName

from tests.unit.scheduler.cluster import Cluster, granted, of

PERFORMED_BY_NOBODY = {"KernelPlaced", "KernelPending", "StartReplica", "StopReplica", "ProvisionHost"}


def report(cluster: Cluster, hosts: str, gpus: int = 1, user: str = "", name: str = "k") -> list[Effect]:
    spec = KernelSpec(KernelId(name), UserName(user), gpus, max(1, len(hosts.split())))
    effects = cluster.feed(KernelReported(spec, tuple(HostName(host) for host in hosts.split())))
    assert not PERFORMED_BY_NOBODY & {type(effect).__name__ for effect in effects}
    return effects


def where(cluster: Cluster) -> list[str]:
    return [host for kernel in cluster.core.view().kernels for host in kernel.hosts]


def test_a_cell_gets_gpus_where_its_kernel_is_and_waits_there_though_others_are_idle() -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.host(name, 2)
    report(cluster, "a b", gpus=2)
    one, two = granted(cluster.ask("r1", 2, kernel="k")), granted(cluster.ask("r2", 2, kernel="k"))
    assert {one.host, two.host} == {"a", "b"}
    assert of(LeaseQueued, cluster.ask("r3", 1, kernel="k"))
    for _ in range(20):
        effects = cluster.feed(TimeReached(), after_s=1.0)
        assert not PERFORMED_BY_NOBODY & {type(effect).__name__ for effect in effects}
    assert granted(cluster.release(one)).host == one.host


def test_more_than_its_hosts_have_is_refused_with_what_they_have() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    cluster.host("big", 8)
    report(cluster, "a")
    refused = of(LeaseRefused, cluster.ask("r", 4, kernel="k"))
    assert [effect.why for effect in refused] == [
        "No host of a has 4 GPUs; the largest possible request is 2 GPUs."
    ]


def test_the_scheduler_follows_a_kernel_and_ends_what_it_left_behind() -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.host(name, 1)
    report(cluster, "a b")
    lease = granted(cluster.ask("r1", kernel="k", hosts="a"))
    granted(cluster.ask("other", kernel="o", hosts="b"))
    assert of(LeaseQueued, cluster.ask("r2", kernel="k"))
    effects = report(cluster, "b c")
    assert [(effect.lease.lease, effect.why) for effect in of(LeaseEnded, effects)] == [
        (lease.lease, "replica lost")
    ]
    assert granted(effects).host == "c", "it is served where the kernel is now"
    assert where(cluster) == ["b", "c"]
    report(cluster, "")
    assert where(cluster) == ["b", "c"], "no hosts: nobody knows, so nothing changes"


def test_hosts_that_are_not_up_do_not_count_until_it_is_said_again() -> None:
    cluster = Cluster()
    report(cluster, "a")
    assert of(LeaseRefused, cluster.ask("early", kernel="k"))
    cluster.host("a", 1)
    assert where(cluster) == []
    report(cluster, "a")
    assert of(LeaseGranted, cluster.ask("r", kernel="k"))


def test_a_lost_host_is_not_replaced_and_who_waits_goes_on_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.host("b", 1)
    report(cluster, "a")
    lease = granted(cluster.ask("r1", kernel="k"))
    cluster.ask("r2", kernel="k")
    effects = cluster.feed(HostDown(HostName("a")))
    assert [type(effect).__name__ for effect in effects if effect != of(LeaseEnded, effects)[0]] == [
        "UsageRecorded"
    ]
    assert of(LeaseEnded, effects)[0].lease.lease == lease.lease
    assert where(cluster) == [] and cluster.waiting() == ["r2"]
    cluster.host("a", 1)
    assert granted(report(cluster, "a")).request == "r2"


def test_a_kernels_request_may_change_and_is_subscribed_anew() -> None:
    cluster = Cluster()
    cluster.host("a", 8)
    report(cluster, "a", gpus=1)
    report(cluster, "a", gpus=4)
    assert [host.subscribed for host in cluster.core.view().hosts] == [4]
    cluster.feed(KernelEnded(KernelId("k")))
    assert [host.subscribed for host in cluster.core.view().hosts] == [0]


def test_a_drained_host_moves_nothing_and_is_released_once_they_have_left() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.host("b", 1)
    report(cluster, "a")
    assert cluster.feed(HostDrained(HostName("a"))) == []
    assert report(cluster, "b") == [ReleaseHost(HostName("a"))]


def test_another_user_cannot_report_the_kernel() -> None:
    cluster = Cluster()
    report(cluster, "", user="alice")
    with pytest.raises(UnexpectedEvent):
        report(cluster, "", user="bob")
    cluster.host("a", 1)
    cluster.kernel("placed", user="carol")
    with pytest.raises(UnexpectedEvent):
        report(cluster, "", name="placed", user="bob")
