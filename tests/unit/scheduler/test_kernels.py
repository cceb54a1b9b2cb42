"""Where kernels are placed, which replica runs a cell, and how replicas move; paper tests name their
section.
"""

from __future__ import annotations

import msgspec
import pytest
from replkernel_scheduler.effects import (
    KernelPending,
    KernelPlaced,
    KernelRefused,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    MigrationFailed,
    ProvisionHost,
    ReplicaMoved,
    StartReplica,
    StopReplica,
)
from replkernel_scheduler.errors import UnexpectedEvent
from replkernel_scheduler.events import (
    HostAway,
    HostDown,
    KernelEnded,
    KernelPinned,
    LeaseWithdrawn,
    ReplicaFailed,
    ReplicaLost,
    ReplicaReady,
    TimeReached,
)
from replkernel_scheduler.migrations import wait_s
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.policies.limit_paper import Paper
from replkernel_scheduler.policies.limit_static import Static
from replkernel_scheduler.policies.migration_never import Never
from replkernel_scheduler.policies.migration_random import RandomVictimOrError
from replkernel_scheduler.policies.placement_bin_pack import BinPack
from replkernel_scheduler.policies.placement_spread import Spread
from replkernel_scheduler.policies.placement_static import Static as ByName
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import HostName, HostShape, KernelId, MigrationId, RequestId

from tests.unit.scheduler.cluster import Cluster, granted, of

change = msgspec.structs.replace
K = KernelId("k")


def four_hosts(cluster: Cluster) -> Cluster:
    for name in "abcd":
        cluster.host(name, 4)
    return cluster


def test_a_kernel_gets_replicas_on_three_hosts_those_with_most_idle_gpus_first() -> None:
    cluster = four_hosts(Cluster())
    cluster.ask("busy", 4, hosts="a")
    assert cluster.kernel("k") == [KernelPlaced(K, (HostName("b"), HostName("c"), HostName("d")))]


@pytest.mark.parametrize(("placement", "hosts"), [(BinPack(), "abc"), (Spread(), "bcd"), (ByName(), "abc")])
def test_placement_policies_order_hosts(placement: object, hosts: str) -> None:
    cluster = four_hosts(Cluster(change(notebook(), placement=placement)))
    cluster.kernel("first", gpus=2, hosts="a")
    assert cluster.kernel("k") == [KernelPlaced(K, tuple(HostName(name) for name in hosts))]


def test_the_subscription_limit_counts_idle_replicas_and_is_strict() -> None:
    cluster = Cluster(change(notebook(), limit=Static(0.5)))
    cluster.host("a", 4)  # S/(G R) must stay below 0.5: below 6 GPUs of three-replica kernels
    cluster.kernel("one", gpus=4, hosts="a")
    assert of(KernelPlaced, cluster.kernel("k", gpus=1))
    assert of(KernelPending, cluster.kernel("two", gpus=1)) == [KernelPending(KernelId("two"), 3)]
    assert of(KernelPlaced, cluster.kernel("none", gpus=0)), "no GPUs always pass (spec 1.2)"


def test_the_papers_limit_places_nothing_on_an_empty_cluster() -> None:
    cluster = four_hosts(Cluster(change(notebook(), limit=Paper())))
    assert of(KernelPending, cluster.kernel("k"))


def test_without_provisioning_a_kernel_starts_with_what_there_is_and_gets_the_rest_later() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    assert cluster.kernel("k") == [KernelPlaced(K, (HostName("a"),))]
    assert cluster.host("b", 4) == [KernelPlaced(K, (HostName("b"),))]


def test_with_provisioning_a_kernel_waits_for_all_and_its_share_is_kept() -> None:
    cluster = Cluster(settings=CoreSettings(host_shape=HostShape(4)))
    cluster.host("a", 4)
    effects = cluster.kernel("k")
    first, second = of(ProvisionHost, effects)
    assert of(KernelPending, effects) == [KernelPending(K, 3)]
    assert [kept.kernels for kept in cluster.core.view().reservations] == [(K,), (K,)]
    assert not of(ProvisionHost, cluster.kernel("other")), "its share fits on the hosts on their way"
    assert not of(KernelPlaced, cluster.host("b", 4, reservation=first.reservation))
    placed = of(KernelPlaced, cluster.host("c", 4, reservation=second.reservation))
    assert [kernel.kernel_id for kernel in placed] == ["k", "other"]


def test_hosts_on_their_way_count_among_those_that_there_may_be() -> None:
    cluster = Cluster(settings=CoreSettings(host_shape=HostShape(4), hosts_max=2))
    assert len(of(ProvisionHost, cluster.kernel("k"))) == 2


def test_a_kernel_that_no_host_could_hold_is_refused() -> None:
    cluster = four_hosts(Cluster())
    (refused,) = cluster.kernel("k", gpus=5)
    assert isinstance(refused, KernelRefused)
    assert "the largest possible request is 4 GPUs" in refused.why


def test_a_cell_runs_where_the_last_one_did_if_it_can_else_where_most_is_idle() -> None:
    cluster = four_hosts(Cluster())
    cluster.kernel("k", hosts="a b c")
    first = granted(cluster.ask("one", kernel="k"))
    cluster.release(first)
    cluster.ask("other", 2, hosts=first.host)
    again = granted(cluster.ask("two", kernel="k"))
    assert again.host == first.host
    cluster.release(again)
    cluster.ask("more", 2, hosts=first.host)
    assert granted(cluster.ask("three", kernel="k")).host != first.host


def moving(policies: object = None, settings: CoreSettings | None = None) -> tuple[Cluster, StartReplica]:
    """Return a cluster whose kernel k on a, b, c needs d, and the start of its new replica there."""
    cluster = four_hosts(Cluster(policies, settings))  # type: ignore[arg-type]
    cluster.kernel("k", hosts="a b c")
    for name in "abc":
        cluster.ask(f"fill {name}", 4, 1000.0, hosts=name)
    effects = cluster.ask("cell", 2, kernel="k")
    assert of(LeaseQueued, effects)[-1] == LeaseQueued(RequestId("cell"), 0)
    (start,) = of(StartReplica, effects)
    return cluster, start


def test_a_failed_election_binds_the_target_first_and_the_old_replica_goes_last() -> None:
    """NotebookOS: a replica moves to a host with the GPUs, which are bound at once (spec 1.5)."""
    cluster, start = moving()
    assert start.host == "d"
    assert start.source in "abc"
    assert [entry.gpus for entry in cluster.leases() if entry.host == "d"] == [("GPU-d-0", "GPU-d-1")]
    (kernel,) = cluster.core.view().kernels
    assert set(kernel.hosts) == set("abc"), "the old replica stays until the new one has the state"
    stop, moved, lease = cluster.feed(ReplicaReady(start.migration))
    assert moved == ReplicaMoved(start.migration, K, HostName("d"), start.source)
    assert stop == StopReplica(K, start.source)
    assert granted([lease]).host == "d"
    (kernel,) = cluster.core.view().kernels
    assert set(kernel.hosts) == set("abcd") - {start.source}


class Sixes:
    """Dice that always show the most."""

    def random(self) -> float:
        return 0.999


def test_a_new_replica_that_fails_is_rolled_back_and_tried_five_times_with_growing_waits() -> None:
    cluster, start = moving(settings=CoreSettings(boot_s=10.0))
    waits = []
    for _ in range(4):
        effects = cluster.feed(ReplicaFailed(start.migration, "no room"))
        assert of(StopReplica, effects) == [StopReplica(K, start.host)]
        assert cluster.waiting() == ["cell"]
        assert "bound" not in cluster.phases()
        due = cluster.core.deadline()
        assert due is not None
        waits.append(due - cluster.now)
        cluster.now = due
        (start,) = of(StartReplica, cluster.feed(TimeReached(), after_s=0.0))
    assert all(5.0 <= wait <= 15.0 for wait in waits), "from 0.5 T to 1.5 T (spec 1.5)"
    assert wait_s(4, 10.0, Sixes()) == 15.0
    (failed,) = of(MigrationFailed, cluster.feed(ReplicaFailed(start.migration, "no room")))
    assert failed.why == "Kernel k was not moved: no room."
    assert cluster.waiting() == ["cell"], "it waits for its own hosts"


def test_who_waits_for_a_host_that_is_on_its_way_is_not_given_up_before_the_deadline() -> None:
    """An engine may take much longer than on average: five tries would be over before its host is up."""
    settings = CoreSettings(host_shape=HostShape(4), boot_s=1.0, boot_max_s=600.0)
    cluster = Cluster(change(notebook(), migration=RandomVictimOrError()), settings)
    for name in "abc":
        cluster.host(name, 4)
    cluster.kernel("k", hosts="a b c")
    for name in "abc":
        cluster.ask(f"fill {name}", 4, 1000.0, hosts=name)
    (wanted,) = of(ProvisionHost, cluster.ask("cell", 2, kernel="k"))
    began = cluster.now
    while cluster.now - began < 100.0:
        due = cluster.core.deadline()
        assert due is not None
        cluster.now = due
        effects = cluster.feed(TimeReached(), after_s=0.0)
        assert not of(LeaseRefused, effects)
        assert not of(ProvisionHost, effects), "one host is on its way"
    cluster.host("d", 4, reservation=wanted.reservation)
    cluster.now = cluster.core.deadline() or cluster.now
    (start,) = of(StartReplica, cluster.feed(TimeReached(), after_s=0.0))
    assert start.host == "d"


def test_a_host_that_comes_after_the_deadline_is_used_by_who_waits_for_it() -> None:
    settings = CoreSettings(host_shape=HostShape(4), boot_max_s=600.0)
    cluster = Cluster(settings=settings)
    cluster.host("a", 4)
    cluster.kernel("k", hosts="a", replicas=1)
    cluster.ask("fill", 4, 1000.0, hosts="a")
    (wanted,) = of(ProvisionHost, cluster.ask("cell", 2, kernel="k"))
    (failed,) = of(MigrationFailed, cluster.feed(TimeReached(), after_s=400.0))
    assert "deadline" in failed.why and cluster.waiting() == ["cell"]
    (start,) = of(StartReplica, cluster.host("d", 4, reservation=wanted.reservation))
    assert start.host == "d"
    assert granted(cluster.feed(ReplicaReady(start.migration))).request == "cell"


def test_who_was_given_up_is_moved_when_a_host_is_back() -> None:
    cluster = Cluster(settings=CoreSettings(host_shape=HostShape(4), hosts_max=2))
    cluster.host("a", 4)
    cluster.host("d", 4)
    cluster.kernel("k", hosts="a", replicas=1)
    cluster.ask("fill", 4, 1000.0, hosts="a")
    cluster.feed(HostAway(HostName("d")))
    cluster.ask("cell", 2, kernel="k")
    assert of(MigrationFailed, cluster.feed(TimeReached(), after_s=400.0))
    assert [start.host for start in of(StartReplica, cluster.host("d", 4))] == ["d"]


def test_a_migration_is_rolled_back_at_its_deadline_and_a_late_answer_changes_nothing() -> None:
    cluster, start = moving(change(notebook(), migration=RandomVictimOrError()))
    effects = cluster.feed(TimeReached(), after_s=301.0)
    assert of(StopReplica, effects) == [StopReplica(K, start.host)]
    assert of(LeaseRefused, effects)[0].request == "cell"
    assert cluster.feed(ReplicaReady(start.migration)) == []


def test_a_request_that_is_withdrawn_on_its_way_brings_the_replica_back() -> None:
    cluster, start = moving()
    assert of(StopReplica, cluster.feed(LeaseWithdrawn(RequestId("cell")))) == [StopReplica(K, start.host)]
    assert cluster.waiting() == []
    assert cluster.core.view().migrations == ()


def test_a_lost_target_is_rolled_back_and_a_lost_source_is_replaced_by_the_move() -> None:
    cluster, start = moving()
    cluster.feed(HostDown(start.source))
    assert granted(cluster.feed(ReplicaReady(start.migration))).host == "d"
    (kernel,) = cluster.core.view().kernels
    assert len(kernel.hosts) == 3
    assert kernel.missing == 0
    cluster, start = moving()
    assert not of(StopReplica, cluster.feed(HostDown(start.host)))
    assert cluster.waiting() == ["cell"]


def test_pinned_replicas_do_not_move_and_nothing_moves_where_the_policy_says_so() -> None:
    cluster = four_hosts(Cluster())
    cluster.kernel("k", hosts="a", replicas=1)
    cluster.feed(KernelPinned(K, HostName("a")))
    cluster.ask("fill", 4, hosts="a")
    assert not of(StartReplica, cluster.ask("cell", kernel="k"))
    cluster = four_hosts(Cluster(change(notebook(), migration=Never())))
    cluster.kernel("k", hosts="a", replicas=1)
    cluster.ask("fill", 4, hosts="a")
    assert not of(StartReplica, cluster.ask("cell", kernel="k"))


def test_a_lost_replica_is_placed_elsewhere_and_its_lease_ends() -> None:
    cluster = four_hosts(Cluster())
    cluster.kernel("k", hosts="a b c")
    lease = granted(cluster.ask("cell", kernel="k"))
    effects = cluster.feed(ReplicaLost(K, lease.host))
    assert of(KernelPlaced, effects) == [KernelPlaced(K, (HostName("d"),))]
    assert cluster.leases() == []


def test_the_end_of_a_kernel_ends_all_that_it_had() -> None:
    cluster, _ = moving()
    effects = cluster.feed(KernelEnded(K))
    assert [refused.request for refused in of(LeaseRefused, effects)] == ["cell"]
    view = cluster.core.view()
    assert (view.kernels, view.migrations, view.waiting) == ((), (), ())
    assert all(host.subscribed == 0 for host in view.hosts)


def test_an_event_that_cannot_follow_raises_with_the_story_and_changes_nothing() -> None:
    cluster = four_hosts(Cluster())
    cluster.kernel("k", gpus=1)
    before = msgspec.json.encode(cluster.core.view().kernels)
    with pytest.raises(UnexpectedEvent, match="expected the kernel as it was started") as caught:
        cluster.kernel("k", gpus=2)
    assert caught.value.about == "k"
    assert '"KernelStarted"' in caught.value.story[0]
    assert msgspec.json.encode(cluster.core.view().kernels) == before
    with pytest.raises(UnexpectedEvent, match="a migration that began here"):
        cluster.feed(ReplicaReady(MigrationId("migration-9")))
    with pytest.raises(UnexpectedEvent, match="a reservation made here"):
        cluster.host("new", 1, reservation="host-3")


def test_the_effects_of_timers_before_a_fault_are_not_lost() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.ask("one", ttl_s=5.0)
    cluster.ask("two")
    with pytest.raises(UnexpectedEvent):
        cluster.feed(ReplicaReady(MigrationId("migration-9")), after_s=10.0)
    assert of(LeaseGranted, cluster.feed(TimeReached()))[0].lease.request == "two"
