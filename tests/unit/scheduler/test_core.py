"""What hosts and kernels notice of leases and their queue; the laws are checked after every event."""

from __future__ import annotations

import msgspec
import pytest
from replkernel_scheduler import host_life, wishes
from replkernel_scheduler.effects import (
    HostRefused,
    LeaseEnded,
    LeaseQueued,
    LeaseRefused,
    LeaseUnknown,
    ReclaimLease,
)
from replkernel_scheduler.errors import InvariantBroken
from replkernel_scheduler.events import (
    HostDown,
    HostUp,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    Resumed,
    TimeReached,
)
from replkernel_scheduler.types import Fence, Gpu, GpuUuid, HostName, Lease, LeaseId, RequestId
from replkernel_scheduler.wishes import GPUS_PER_HOST_MAX

from tests.unit.scheduler.cluster import Cluster, granted, of


def test_a_request_gets_the_idle_gpus_of_one_host_at_once() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    lease = granted(cluster.ask("one", gpus=2))
    assert lease.host == "a"
    assert lease.gpus == ("GPU-a-0", "GPU-a-1")
    assert lease.expires_at == cluster.now + 100.0


def test_two_leases_never_share_a_gpu_and_the_newer_has_the_larger_fence() -> None:
    cluster = Cluster(fence=41)
    cluster.host("a", 2)
    first, second = granted(cluster.ask("one")), granted(cluster.ask("two"))
    assert set(first.gpus).isdisjoint(second.gpus)
    assert 41 < first.fence < second.fence


def test_the_host_with_most_idle_gpus_serves_and_names_decide_among_equals() -> None:
    cluster = Cluster()
    cluster.host("b", 2)
    cluster.host("a", 2)
    hosts = [granted(cluster.ask(name)).host for name in ("one", "two", "three", "four")]
    assert hosts == ["a", "b", "a", "b"]


def test_a_request_is_served_by_the_hosts_it_names_only() -> None:
    cluster = Cluster()
    cluster.host("a", 8)
    cluster.host("b", 1)
    assert granted(cluster.ask("one", hosts="b")).host == "b"
    assert cluster.ask("two", hosts="b") == [LeaseQueued(RequestId("two"), 1)]


def test_requests_are_served_first_come_first_served_and_a_small_one_never_overtakes() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    three = granted(cluster.ask("three", gpus=3))
    assert cluster.ask("four", gpus=4) == [LeaseQueued(RequestId("four"), 1)]
    assert cluster.ask("one", gpus=1) == [LeaseQueued(RequestId("one"), 2)]
    effects = cluster.release(three)
    assert [ended.why for ended in of(LeaseEnded, effects)] == ["released"]
    assert granted(effects).request == "four"
    assert cluster.waiting() == ["one"]


def test_asking_again_is_the_same_request() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one"))
    assert granted(cluster.ask("one")) == lease
    cluster.ask("two")
    assert cluster.ask("two") == [LeaseQueued(RequestId("two"), 1)]
    assert cluster.waiting() == ["two"]


def test_who_was_not_heard_while_the_driver_was_away_has_time_to_renew() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    short, long = granted(cluster.ask("one", ttl_s=10.0)), granted(cluster.ask("two", ttl_s=100.0))
    cluster.feed(Resumed(30.0), after_s=8.0)
    ends = {lease.request: lease.expires_at for lease in cluster.leases()}
    assert ends == {"one": cluster.now + 30.0, "two": long.expires_at}
    cluster.feed(LeaseRenewed(short.lease, short.fence), after_s=29.0)
    assert cluster.leases()[0].expires_at == cluster.now + 10.0
    assert cluster.feed(TimeReached(), after_s=11.0)[-1] == LeaseEnded(short_now(short, cluster), "expired")


def short_now(lease: Lease, cluster: Cluster) -> Lease:
    return msgspec.structs.replace(lease, expires_at=cluster.now - 1.0)


def test_a_lease_that_is_not_renewed_expires_when_its_time_is_up() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one", ttl_s=10.0))
    cluster.ask("two")
    assert cluster.core.deadline() == lease.expires_at
    cluster.now = lease.expires_at - 1.0
    effects = cluster.feed(TimeReached())
    assert of(LeaseEnded, effects) == [LeaseEnded(lease, "expired")]
    assert granted(effects).request == "two"


def test_nothing_is_due_when_nothing_is_leased() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    assert cluster.core.deadline() is None


def test_a_renewal_lets_the_time_begin_anew_and_keeps_gpus_and_fence() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one", ttl_s=10.0))
    renewed = granted(cluster.feed(LeaseRenewed(lease.lease, lease.fence), after_s=9.0))
    assert renewed.expires_at == cluster.now + 10.0
    assert (renewed.gpus, renewed.fence) == (lease.gpus, lease.fence)


@pytest.mark.parametrize("change", [LeaseRenewed, LeaseReleased])
def test_a_lease_is_changed_by_its_fence_only(change: type[LeaseRenewed] | type[LeaseReleased]) -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one"))
    stale = cluster.feed(change(lease.lease, Fence(lease.fence - 1)))
    gone = cluster.feed(change(LeaseId("lease-none"), lease.fence))
    assert [type(effect) for effect in stale + gone] == [LeaseUnknown, LeaseUnknown]
    assert cluster.leases() == [lease]


def test_an_expired_lease_cannot_be_renewed_even_before_the_timer_fires() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one", ttl_s=5.0))
    effects = cluster.feed(LeaseRenewed(lease.lease, lease.fence), after_s=5.0)
    assert [type(effect) for effect in effects[-2:]] == [LeaseEnded, LeaseUnknown]


def test_a_host_that_goes_down_ends_its_leases_and_refuses_what_only_it_could_serve() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.host("b", 1)
    lease = granted(cluster.ask("one", gpus=4))
    cluster.ask("big", gpus=4)
    effects = cluster.feed(HostDown(HostName("a")))
    assert of(LeaseEnded, effects) == [LeaseEnded(lease, "host down")]
    (refused,) = of(LeaseRefused, effects)
    assert refused.request == "big"
    assert "the largest possible request is 1 GPU." in refused.why


def test_a_host_that_reports_again_without_a_gpu_ends_the_leases_on_it() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    first, second = granted(cluster.ask("one")), granted(cluster.ask("two"))
    assert of(LeaseEnded, cluster.host("a", 1)) == [LeaseEnded(second, "gpu gone")]
    assert cluster.leases() == [first]


def test_a_host_that_reports_again_unchanged_changes_nothing() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    lease = granted(cluster.ask("one"))
    assert cluster.host("a", 2) == []
    assert cluster.leases() == [lease]


def test_new_gpus_serve_those_that_wait() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.ask("one")
    cluster.ask("two")
    assert granted(cluster.host("b", 1)).request == "two"


def test_who_waits_for_a_host_keeps_its_claim_when_the_host_offers_something_else() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    lease = granted(cluster.ask("one", gpus=4, ttl_s=1000.0))
    cluster.ask("two", gpus=4, hosts="a")
    cluster.host("a", 4, memory_gb=64.0)
    (waiting,) = cluster.core.view().waiting
    assert waiting.claim == "a"
    assert of(ReclaimLease, cluster.linger(lease))
    assert granted(cluster.release(lease)).request == "two"


def test_a_withdrawn_request_is_not_served_and_no_longer_blocks() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    cluster.ask("one")
    cluster.ask("both", gpus=2)
    cluster.ask("last")
    assert granted(cluster.feed(LeaseWithdrawn(RequestId("both")))).request == "last"


@pytest.mark.parametrize(
    ("gpus", "ttl_s", "said"),
    [
        (-1, 10.0, "some GPUs or none, not -1"),
        (65, 10.0, "No host has 65 GPUs; the largest possible request is"),
        (1, 0.0, "up to"),
        (1, 1e9, "up to"),
        (3, 10.0, "No host"),
    ],
)
def test_a_wish_that_cannot_come_true_is_refused_in_a_sentence(gpus: int, ttl_s: float, said: str) -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    (refused,) = cluster.ask("one", gpus=gpus, ttl_s=ttl_s)
    assert isinstance(refused, LeaseRefused)
    assert said in refused.why


def test_the_queue_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "QUEUE_MAX", 1)
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.ask("one")
    cluster.ask("two")
    (refused,) = cluster.ask("three")
    assert isinstance(refused, LeaseRefused)
    assert "try again later" in refused.why


def test_hosts_that_cannot_be_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    taken = cluster.feed(HostUp(HostName("b"), (Gpu(GpuUuid("GPU-a-0")),)))
    twice = cluster.feed(HostUp(HostName("c"), (Gpu(GpuUuid("x")), Gpu(GpuUuid("x")))))
    many = cluster.host("d", GPUS_PER_HOST_MAX + 1)
    monkeypatch.setattr(host_life, "HOSTS_MAX", 1)
    full = cluster.host("e", 1)
    whys = [effect.why for effect in taken + twice + many + full if isinstance(effect, HostRefused)]
    assert len(whys) == 4
    assert "offered by host a" in whys[0]
    assert [host.name for host in cluster.core.view().hosts] == ["a"]


def test_a_clock_that_goes_back_is_a_fault_of_the_driver() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    with pytest.raises(ValueError, match="went back"):
        cluster.core.handle(TimeReached(), cluster.now - 0.1)


def test_a_broken_law_is_found() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    granted(cluster.ask("one"))
    (record,) = cluster.core._parts.leases.by_id.values()
    cluster.core._parts.leases.by_id[LeaseId("stolen")] = record
    with pytest.raises(InvariantBroken, match="two leases"):
        cluster.core.check_invariants()
