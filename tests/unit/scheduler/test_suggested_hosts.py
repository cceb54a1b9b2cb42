"""Hosts for a new kernel that places itself: with GPUs, with the fewest replicas, none draining, spread."""

from __future__ import annotations

from replkernel_scheduler.events import HostDrained, KernelReported
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, UserName

from tests.unit.scheduler.cluster import Cluster

K = KernelId("k")


def four() -> Cluster:
    cluster = Cluster()
    for name in "abcd":
        cluster.host(name, 4)
    return cluster


def report(cluster: Cluster, name: str, hosts: str) -> None:
    spec = KernelSpec(KernelId(name), UserName("u"), 0, len(hosts))
    cluster.feed(KernelReported(spec, tuple(HostName(host) for host in hosts)))


def test_hosts_with_the_fewest_replicas_come_first_and_a_draining_one_does_not_come() -> None:
    cluster = four()
    report(cluster, "one", "ab")
    report(cluster, "two", "a")
    hosts = cluster.core.hosts_for(K, 3)
    assert set(hosts[:2]) == {"c", "d"}
    assert hosts[2:] == ["b", "a"]
    cluster.feed(HostDrained(HostName("c")))
    assert cluster.core.hosts_for(K, 3) == ["d", "b", "a"]


def test_kernels_that_begin_at_once_are_not_all_on_the_same_hosts() -> None:
    cluster = four()
    firsts = {cluster.core.hosts_for(KernelId(f"k{number}"), 3)[0] for number in range(40)}
    assert firsts == {"a", "b", "c", "d"}


def test_hosts_without_gpus_come_last_and_a_kernel_that_begins_anew_may_have_its_own_again() -> None:
    cluster = four()
    cluster.host("e", 0)
    report(cluster, "k", "abcd")
    assert cluster.core.hosts_for(K, 3)[-1] == "e"
    assert len(cluster.core.hosts_for(K, 3)) == 5
