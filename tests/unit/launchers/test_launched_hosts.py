"""A launcher's hosts and reservations, the counts of an engine's other jobs, and what options are taken."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import CancelHost, LeaseGranted, ProvisionHost, ReleaseHost
from replkernel_scheduler.events import LeaseAsked, LeaseReleased, LeaseRenewed, LeaseWithdrawn, QuotaSet
from replkernel_scheduler.types import (
    Fence,
    HostName,
    HostShape,
    KernelId,
    Lease,
    LeaseId,
    RequestId,
    ReservationId,
)
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.engine_usage import RENEW_S, USER, EngineUsage
from replkernel_server.launchers.hosts import LaunchedHosts
from replkernel_server.launchers.installed import make, names, read_options
from replkernel_server.launchers.ray.counts import Counts
from replkernel_server.launchers.ray.names import hold_name, node_of, read_hold

A, B = HostName("ray-a"), HostName("ray-b")
ONE, TWO = ReservationId("host-1"), ReservationId("host-2")


def test_a_host_that_comes_later_fulfils_the_oldest_reservation() -> None:
    hosts = LaunchedHosts()
    assert hosts.joined(A) is None
    assert hosts.decided([ProvisionHost(ONE, HostShape()), ProvisionHost(TWO, HostShape())]) == (True, [])
    assert hosts.joined(A) is None, "it was there before"
    assert hosts.joined(B) == ONE
    assert hosts.open == [TWO]
    assert hosts.decided([CancelHost(TWO)]) == (True, [])
    assert hosts.decided([CancelHost(TWO)]) == (False, [])


def test_only_its_own_hosts_are_given_back_and_a_failure_ends_all_that_is_open() -> None:
    hosts = LaunchedHosts([ONE])
    hosts.joined(A)
    assert hosts.open == []
    assert hosts.decided([ReleaseHost(A), ReleaseHost(B)]) == (False, [A])
    hosts.decided([ProvisionHost(TWO, HostShape())])
    assert hosts.failed() == [TWO]
    assert hosts.open == []
    hosts.lost(A)
    assert hosts.decided([ReleaseHost(A)]) == (False, [])


def test_each_gpu_of_other_jobs_is_a_lease_of_theirs_before_everybody_who_waits() -> None:
    engine_usage = EngineUsage()
    quota, first, second = engine_usage.counted(A, 2)
    assert isinstance(quota, QuotaSet) and quota.quota.priority > 0
    assert isinstance(first, LeaseAsked) and isinstance(second, LeaseAsked)
    assert (first.request.gpus, first.request.hosts, first.request.user) == (1, (A,), USER)
    assert first.request.request != second.request.request
    assert engine_usage.counted(A, 2) == []
    request = second.request.request
    held = Lease(LeaseId("l"), request, KernelId("k"), A, (), Fence(3), 1.0, 1.0, USER)
    engine_usage.decided([LeaseGranted(held)])
    assert engine_usage.due(0.0) == [LeaseRenewed(held.lease, held.fence)]
    assert engine_usage.due(RENEW_S - 1) == []
    assert engine_usage.counted(A, 1) == [LeaseReleased(held.lease, held.fence)]
    assert engine_usage.counted(A, 0) == [LeaseWithdrawn(first.request.request)]


def test_leases_in_force_before_a_restart_go_on() -> None:
    held = Lease(LeaseId("l"), RequestId("engine ray-a 7"), KernelId("k"), A, (), Fence(3), 1.0, 1.0, USER)
    engine_usage = EngineUsage([held])
    assert engine_usage.count(A) == 1
    (more,) = engine_usage.counted(A, 2)
    assert isinstance(more, LeaseAsked)
    assert more.request.request == "engine ray-a 8"


def test_a_count_is_told_when_two_looks_agree_and_nothing_was_stirred() -> None:
    counts = Counts()
    assert counts.read("a", 0, counts.begins()) is None
    assert counts.read("a", 0, counts.begins()) == 0, "the first one, whatever it is"
    assert counts.read("a", 2, counts.begins()) is None
    assert counts.read("a", 2, counts.begins()) == 2
    assert counts.read("a", 2, counts.begins()) is None
    counts.stirred("a")
    assert counts.read("a", 3, counts.begins()) is None
    counts.calmed("a")
    told = [counts.read("a", 3, counts.begins()) for _ in range(4)]
    assert told.count(3) == 1 and told[0] is None
    counts.doubt("a")
    assert 3 in [counts.read("a", 3, counts.begins()) for _ in range(2)]


def test_a_node_is_a_host_by_its_label_or_id_if_its_labels_are_those_wanted() -> None:
    entry = {"NodeID": "0123456789abcdef", "NodeManagerAddress": "10.0.0.1", "Resources": {"GPU": 4.0}}
    node = node_of(entry, {})
    assert node is not None
    assert (node.host, node.gpus) == ("ray-0123456789ab", 4)
    named = {**entry, "Labels": {"replkernel.io/host": "gpu1", "zone": "a"}}
    found = node_of(named, {"zone": "a"})
    assert found is not None and found.host == "ray-gpu1"
    assert node_of(named, {"zone": "b"}) is None
    bad = node_of({**entry, "Labels": {"replkernel.io/host": "../x"}}, {})
    assert bad is not None and bad.host == "ray-0123456789ab"


def test_a_holds_name_is_read_back_and_others_are_not_ours() -> None:
    assert read_hold(hold_name("ray-a", "GPU-1", 7)) == ("ray-a", "GPU-1")
    assert read_hold("replkernel lease x") is None
    assert read_hold("somebody's group") is None


def test_launchers_are_found_by_name_and_options_read() -> None:
    assert {"local", "ray"} <= set(names())
    assert read_options(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    with pytest.raises(ServiceSettingError, match="not key=value"):
        read_options(["address"])
    with pytest.raises(ServiceSettingError, match=r"no launcher 'raay'; installed are .*ray"):
        make("raay", {})
