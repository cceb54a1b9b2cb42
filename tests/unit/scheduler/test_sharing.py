"""Who goes first, who is over quota, what lingers and what it all cost."""

from __future__ import annotations

import msgspec
import pytest
from replkernel_scheduler.effects import (
    HostRefused,
    LeaseChanged,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    ReclaimLease,
    ReleaseHost,
    UsageRecorded,
)
from replkernel_scheduler.events import (
    HostDrained,
    KernelEnded,
    LeaseReleased,
    LeaseRenewed,
    MonthBegan,
    Prewarmed,
    QuotaSet,
    TimeReached,
)
from replkernel_scheduler.policies.built_in import fcfs_batch, large_pool, notebook, reservation
from replkernel_scheduler.policies.order_fifo import Fifo
from replkernel_scheduler.types import HostName, KernelId, RequestId, UserName, UserQuota

from tests.unit.scheduler.cluster import Cluster, granted, of


def quota(cluster: Cluster, user: str, **limits: object) -> None:
    cluster.feed(QuotaSet(UserName(user), UserQuota(**limits)))  # type: ignore[arg-type]


def test_hosts_do_not_hold_each_other_up_but_nobody_overtakes_on_the_same_host() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    cluster.host("b", 2)
    held = granted(cluster.ask("held", 1, hosts="a"))
    cluster.ask("large", 2, hosts="a")
    assert granted(cluster.ask("elsewhere", 1, hosts="b")).host == "b"
    cluster.ask("small", 1, hosts="a")
    assert cluster.waiting() == ["large", "small"]
    assert granted(cluster.release(held)).request == "large"


def test_whoever_used_little_goes_first_and_each_user_in_their_own_order() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("greedy 1", user="greedy"))
    for name in ("greedy 2", "greedy 3"):
        cluster.ask(name, user="greedy")
    cluster.ask("modest 1", user="modest")
    assert cluster.waiting() == ["modest 1", "greedy 2", "greedy 3"]
    assert granted(cluster.release(lease)).request == "modest 1"
    fifo = Cluster(msgspec.structs.replace(notebook(), order=Fifo()))
    fifo.host("a", 1)
    for name in ("greedy 1", "greedy 2", "modest 1"):
        fifo.ask(name, user=name.split()[0])
    assert fifo.waiting() == ["greedy 2", "modest 1"]


def test_a_higher_priority_goes_before_everybody_else() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    quota(cluster, "boss", priority=5)
    lease = granted(cluster.ask("running"))
    cluster.ask("first")
    effects = cluster.ask("urgent", user="boss")
    assert of(LeaseQueued, effects)[0].position == 1
    assert granted(cluster.release(lease)).request == "urgent"


def used_before(cluster: Cluster, *, count: int = 4, held_s: float = 12.0) -> None:
    """Have leases end, one after another."""
    for number in range(count):
        cluster.release(granted(cluster.ask(f"before{number}")), after_s=held_s)


def test_nothing_is_guessed_from_a_few_leases() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    used_before(cluster, held_s=0.05)
    cluster.ask("holds")
    assert of(LeaseQueued, cluster.ask("waits")) == [LeaseQueued(RequestId("waits"), 1, None)]


def test_nothing_is_guessed_where_the_holder_has_taken_longer_than_usual_already() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    used_before(cluster, count=5, held_s=1.0)
    cluster.ask("holds")
    (told,) = of(LeaseQueued, cluster.ask("soon", hosts="a"))
    assert told.estimate_s is not None
    cluster.feed(TimeReached(), after_s=9.0)
    (told,) = of(LeaseQueued, cluster.ask("waits", hosts="a"))
    assert told.estimate_s is None


def test_whoever_moves_up_is_told_and_gets_an_estimate_once_leases_have_ended() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    used_before(cluster)
    lease = granted(cluster.ask("one"))
    assert of(LeaseQueued, cluster.ask("two")) == [LeaseQueued(RequestId("two"), 1, None)]
    assert of(LeaseQueued, cluster.ask("three")) == [LeaseQueued(RequestId("three"), 2, None)]
    effects = cluster.release(lease, after_s=10.0)
    (told,) = of(LeaseQueued, effects)
    assert (told.request, told.position) == ("three", 1)
    assert told.estimate_s == 12.0, "as long as the one lease so far was held"
    assert cluster.core.estimate_s(RequestId("three")) == 12.0
    assert cluster.core.estimate_s(RequestId("two")) is None, "it waits no more"


def test_an_event_tells_a_bounded_number_of_those_who_wait() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("running"))
    for number in range(50):
        cluster.ask(f"waiting {number}")
    assert len(of(LeaseQueued, cluster.release(lease))) <= 32


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (
            {"gpus": 5},
            "No host has 5 GPUs; the largest possible request is 4 A100 GPUs of 40 GiB, 8 cores, 32 GiB",
        ),
        ({"gpus": 1024}, "No host has 1024 GPUs; the largest possible request is 4 A100 GPUs of 40 GiB"),
        ({"gpus": 3, "model": "H100"}, "the largest possible request is 2 H100 GPUs of 80 GiB"),
        (
            {"vram_gb": 90.0},
            "No host has 1 GPU of 90 GiB; the largest possible request is 4 A100 GPUs of 40 GiB",
        ),
        ({"cpu": 64.0}, "64 cores; the largest possible request is 4 A100 GPUs of 40 GiB, 8 cores"),
        ({"hosts": "b", "gpus": 4}, "No host of b has 4 GPUs; the largest possible request is 2 H100 GPUs"),
    ],
)
def test_an_impossible_request_is_refused_at_once_with_the_largest_one(
    wish: dict[str, object], said: str
) -> None:
    cluster = Cluster()
    cluster.host("a", 4, "A100", 40.0, cpu=8.0, memory_gb=32.0)
    cluster.host("b", 2, "H100", 80.0, cpu=8.0, memory_gb=32.0)
    (refused,) = cluster.ask("cell", **wish)  # type: ignore[arg-type]
    assert isinstance(refused, LeaseRefused)
    assert said in refused.why


def test_model_memory_cores_and_no_gpus_at_all_are_respected() -> None:
    cluster = Cluster()
    cluster.host("a", 4, "A100", 40.0, cpu=8.0, memory_gb=32.0)
    cluster.host("b", 2, "H100", 80.0, cpu=8.0, memory_gb=32.0)
    assert granted(cluster.ask("one", model="H100")).host == "b"
    assert granted(cluster.ask("two", vram_gb=60.0, cpu=6.0)).host == "b"
    assert granted(cluster.ask("three", 0, hosts="b", cpu=2.0)).gpus == ()
    assert of(LeaseQueued, cluster.ask("four", 0, hosts="b", cpu=1.0)), "the cores are taken"


def test_a_user_over_quota_is_refused_with_the_quota_named() -> None:
    cluster = Cluster()
    cluster.host("a", 8)
    quota(cluster, "ann", gpu_quota=2)
    lease = granted(cluster.ask("one", 2, user="ann"))
    (refused,) = of(LeaseRefused, cluster.ask("two", 1, user="ann"))
    assert "The gpu_quota of ann is 2 GPUs at once; 2 are in use" in refused.why
    granted(cluster.ask("other", 2, user="bob"))
    cluster.linger(lease)
    assert granted(cluster.ask("three", 2, user="ann")), "GPUs that linger are nobody's"


def test_the_hours_of_a_month_are_counted_while_they_run_and_anew_each_month() -> None:
    cluster = Cluster()
    cluster.host("a", 8)
    quota(cluster, "ann", gpu_hours_month=1.0)
    granted(cluster.ask("one", 2, ttl_s=7200.0, user="ann"))
    cluster.feed(TimeReached(), after_s=1800.0)
    (refused,) = of(LeaseRefused, cluster.ask("two", user="ann"))
    assert "The gpu_hours_month of ann is 1 GPU-hours" in refused.why
    cluster.feed(MonthBegan())
    assert granted(cluster.ask("three", user="ann"))


def test_state_that_lingers_stays_on_its_gpus_and_the_next_cell_finds_it_there() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.ask("front", 1)
    lease = granted(cluster.ask("one", 2, kernel="k"))
    assert of(LeaseEnded, cluster.linger(lease)) == []
    assert cluster.phases() == ["active", "lingering"]
    effects = cluster.ask("two", 2, kernel="k")
    assert of(LeaseEnded, effects) == [LeaseEnded(lease, "reused")]
    again = granted(effects)
    assert again.gpus == lease.gpus
    assert again.fence > lease.fence
    cluster.linger(again)
    assert granted(cluster.ask("three", 3, kernel="k")).gpus[:2] == lease.gpus, (
        "more GPUs: the same ones first"
    )


def test_fewer_gpus_than_linger_leave_the_rest_lingering() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    lease = granted(cluster.ask("one", 3, kernel="k"))
    cluster.linger(lease)
    effects = cluster.ask("two", 1, kernel="k")
    assert granted(effects).gpus == lease.gpus[:1]
    assert [changed.lease.gpus for changed in of(LeaseChanged, effects)] == [lease.gpus[1:]]


def test_lingering_gpus_are_asked_back_only_when_somebody_wants_them() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    first = granted(cluster.ask("one", 1, kernel="k1"))
    second = granted(cluster.ask("two", 1, kernel="k2"))
    cluster.linger(first)
    cluster.linger(second)
    assert granted(cluster.ask("idle", 1)).gpus == ("GPU-a-2",)
    effects = cluster.ask("three", 1, kernel="k3")
    (asked,) = of(ReclaimLease, effects)
    assert asked.lease.lease == first.lease
    assert of(ReclaimLease, cluster.feed(LeaseRenewed(first.lease, first.fence))), (
        "a renewal puts nothing off"
    )
    assert granted(cluster.feed(LeaseReleased(first.lease, first.fence))).request == "three"


def test_lingering_gpus_that_are_not_given_back_in_time_are_taken() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.linger(granted(cluster.ask("one", kernel="k1")))
    (asked,) = of(ReclaimLease, cluster.ask("two", kernel="k2"))
    due = cluster.core.deadline()
    assert due is not None and due <= asked.until
    effects = cluster.feed(TimeReached(), after_s=asked.until - cluster.now)
    assert [ended.why for ended in of(LeaseEnded, effects)] == ["not given back"]
    assert granted(effects).request == "two"


def test_a_release_at_the_same_time_goes_before_an_expiry() -> None:
    """The order of simultaneous events (spec 0.1): frees, hosts, timers, arrivals."""
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one", ttl_s=5.0))
    assert [ended.why for ended in of(LeaseEnded, cluster.release(lease, after_s=5.0))] == ["released"]


def test_the_accounts_hold_what_was_used_and_what_was_saved() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.kernel("k", gpus=2, hosts="a", replicas=1, user="ann")
    lease = granted(cluster.ask("cell", 2, kernel="k", user="ann"))
    (row,) = of(UsageRecorded, cluster.release(lease, after_s=10.0, busy_s=4.0))
    usage = row.usage
    assert (usage.gpus, usage.queued_s, usage.leased_s, usage.busy_s) == (2, 0.0, 10.0, 4.0)
    cluster.feed(KernelEnded(KernelId("k")), after_s=89.0)
    (kernel,) = cluster.core.view().usage
    assert kernel.usage.gpu_s == 20.0
    assert kernel.usage.reserved_gpu_s == 200.0, "two GPUs for the hundred seconds of its life"
    assert kernel.usage.saved_gpu_s == 180.0
    (user,) = [entry for entry in cluster.core.view().users if entry.user == "ann"]
    assert user.usage == kernel.usage


def test_a_kernel_that_nobody_started_is_accounted_for_from_its_first_request_to_its_last_lease() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.release(granted(cluster.ask("one", 2, kernel="k")), after_s=10.0)
    cluster.release(granted(cluster.ask("two", 1, kernel="k")), after_s=9.0)
    cluster.feed(TimeReached(), after_s=1000.0)
    (kernel,) = cluster.core.view().usage
    assert (kernel.usage.gpu_s, kernel.usage.reserved_gpu_s, kernel.live) == (29.0, 40.0, False)


@pytest.mark.parametrize("size", [float("inf"), float("nan"), -1.0])
def test_sizes_that_are_no_sizes_are_refused(size: float) -> None:
    cluster = Cluster()
    assert of(HostRefused, cluster.host("a", 1, cpu=size))
    cluster.host("a", 1)
    assert of(LeaseRefused, cluster.ask("one", memory_gb=size))


def test_time_in_the_queue_is_accounted_for() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("one"))
    cluster.ask("two")
    second = granted(cluster.release(lease, after_s=7.0))
    (row,) = of(UsageRecorded, cluster.release(second))
    assert row.usage.queued_s == 7.0


def test_reservation_holds_a_kernels_gpus_from_its_start_to_its_end() -> None:
    cluster = Cluster(reservation())
    cluster.host("a", 2)
    cluster.kernel("k1", gpus=2, replicas=1)
    assert cluster.phases() == ["reserved"]
    cluster.kernel("k2", gpus=1, replicas=1)
    lease = granted(cluster.ask("cell", 2, kernel="k1"))
    cluster.release(lease)
    assert [entry.gpus for entry in cluster.leases()] == [lease.gpus], (
        "they go back to the kernel, not to others"
    )
    cluster.feed(KernelEnded(KernelId("k1")))
    assert [entry.kernel_id for entry in cluster.leases()] == ["k2"]


def test_a_reserved_kernel_stays_on_a_draining_host_to_its_end() -> None:
    cluster = Cluster(reservation())
    cluster.host("a", 2)
    cluster.host("b", 2)
    cluster.kernel("k", gpus=2, replicas=1)
    assert cluster.feed(HostDrained(HostName("a"))) == []
    effects = cluster.feed(KernelEnded(KernelId("k")))
    assert [type(effect) for effect in effects] == [LeaseEnded, ReleaseHost]


def test_fcfs_batch_runs_cells_on_any_host_in_their_order() -> None:
    cluster = Cluster(fcfs_batch())
    cluster.host("a", 1)
    cluster.host("b", 1)
    leases = [granted(cluster.ask(name, kernel="k", user=name)) for name in ("one", "two")]
    assert {lease.host for lease in leases} == {"a", "b"}
    cluster.ask("three", user="one")
    cluster.ask("four", user="new")
    assert granted(cluster.release(leases[1])).request == "three"


def test_large_pool_uses_prewarmed_processes_and_takes_them_back() -> None:
    cluster = Cluster(large_pool())
    (wanted,) = cluster.host("a", 1)
    for _ in range(wanted.count):  # type: ignore[union-attr]
        cluster.feed(Prewarmed(wanted.host))  # type: ignore[union-attr]
    (told,) = of(LeaseGranted, cluster.ask("one"))
    assert told.prewarmed, "its holder is told that a process waits for it"
    lease = told.lease
    assert of(LeaseGranted, cluster.ask("one")) == [told]
    (host,) = cluster.core.view().hosts
    assert (host.prewarmed, host.warming) == (7, 1)
    cluster.release(lease)
    assert cluster.core.view().hosts[0].prewarmed == 7, "the one on its way fills its place"
