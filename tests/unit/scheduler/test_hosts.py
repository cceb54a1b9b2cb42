"""Hosts come and go: drained, provisioned, released, and kept supplied with pre-warmed processes."""

from __future__ import annotations

import msgspec
import pytest
from replkernel_scheduler.effects import (
    CancelHost,
    Effect,
    KernelPlaced,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    MigrationFailed,
    Prewarm,
    ProvisionHost,
    ReclaimLease,
    ReleaseHost,
    ReplicaMoved,
    StartReplica,
    StopReplica,
)
from replkernel_scheduler.errors import UnexpectedEvent
from replkernel_scheduler.events import (
    HostDown,
    HostDrained,
    HostNotProvisioned,
    HostUndrained,
    KernelEnded,
    Prewarmed,
    PrewarmFailed,
    ReplicaReady,
    TimeReached,
)
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.policies.limit_static import Static
from replkernel_scheduler.policies.prewarm_little import Little
from replkernel_scheduler.policies.prewarm_minimum import Minimum
from replkernel_scheduler.policies.protocol import ClusterLoad, ScalingStep
from replkernel_scheduler.policies.scaling_buffered import Buffered
from replkernel_scheduler.prewarm import RATE_S, PrewarmRate
from replkernel_scheduler.reservations import BOOT_WEIGHT
from replkernel_scheduler.scaling import IDLE_REPLICAS_MAX
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import HostName, HostShape, KernelId

from tests.unit.scheduler.cluster import Cluster, granted, of

change = msgspec.structs.replace
K = KernelId("k")


def scaled(**numbers: int) -> Cluster:
    settings = CoreSettings(host_shape=HostShape(4), **({"hosts_min": 1, "hosts_buffer": 1} | numbers))  # type: ignore[arg-type]
    return Cluster(change(notebook(), scaling=Buffered(), limit=Static(9.0)), settings)


def passes(cluster: Cluster, count: int = 1) -> list[Effect]:
    told: list[Effect] = []
    for _ in range(count):
        told += cluster.feed(TimeReached(), after_s=30.0)
    return told


def test_a_drained_host_is_released_once_its_idle_replicas_have_moved() -> None:
    cluster = Cluster()
    for name in "abcd":
        cluster.host(name, 4)
    cluster.kernel("k", hosts="a b c")
    (start,) = of(StartReplica, cluster.feed(HostDrained(HostName("a"))))
    assert (start.host, start.source) == ("d", "a")
    effects = cluster.feed(ReplicaReady(start.migration))
    moved = ReplicaMoved(start.migration, K, HostName("d"), HostName("a"))
    assert effects == [StopReplica(K, HostName("a")), moved, ReleaseHost(HostName("a"))]
    assert cluster.feed(HostDown(HostName("a"))) == []


def test_a_drained_host_asks_for_what_lingers_and_lets_cells_finish() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    running, done = granted(cluster.ask("running")), granted(cluster.ask("done"))
    cluster.linger(done)
    assert of(ReclaimLease, cluster.feed(HostDrained(HostName("a"))))
    assert not of(ReleaseHost, cluster.release(done))
    assert of(ReleaseHost, cluster.release(running)) == [ReleaseHost(HostName("a"))]


def test_a_replica_that_runs_a_cell_leaves_a_draining_host_after_it() -> None:
    cluster = Cluster()
    for name in "ab":
        cluster.host(name, 4)
    cluster.kernel("k", hosts="a", replicas=1)
    lease = granted(cluster.ask("cell", kernel="k"))
    assert not of(StartReplica, cluster.feed(HostDrained(HostName("a"))))
    (start,) = of(StartReplica, cluster.release(lease))
    assert of(ReleaseHost, cluster.feed(ReplicaReady(start.migration))) == [ReleaseHost(HostName("a"))]


A = HostName("a")


def test_an_undrained_host_serves_who_waits_at_once() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.host("b", 1)
    cluster.feed(HostDrained(A))
    assert granted(cluster.ask("first")).host == "b"
    assert not of(LeaseGranted, cluster.ask("second"))
    assert granted(cluster.feed(HostUndrained(A))).host == "a"
    assert [host.state for host in cluster.core.view().hosts] == ["up", "up"]


def test_an_undrained_host_takes_replicas_that_had_nowhere_to_go() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.host("b", 4)
    cluster.feed(HostDrained(A))
    assert of(KernelPlaced, cluster.kernel("k", replicas=2)) == [KernelPlaced(K, (HostName("b"),))]
    assert of(KernelPlaced, cluster.feed(HostUndrained(A))) == [KernelPlaced(K, (A,))]


def test_nothing_is_moved_away_from_an_undrained_host_but_what_is_on_its_way() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.kernel("k", hosts="a", replicas=1)
    cluster.feed(HostDrained(A))
    assert [move.phase for move in cluster.core.view().migrations] == ["seeking"]
    cluster.feed(HostUndrained(A))
    assert cluster.core.view().migrations == () and cluster.core.deadline() is None
    cluster.host("b", 4)
    (start,) = of(StartReplica, cluster.feed(HostDrained(A)))
    cluster.feed(HostUndrained(A))
    assert of(StopReplica, cluster.feed(ReplicaReady(start.migration))) == [StopReplica(K, A)]
    assert granted(cluster.ask("cell", hosts="a")).host == "a"


def test_an_undrained_host_may_be_drained_again_also_one_that_was_empty() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    for _ in range(2):
        assert cluster.feed(HostDrained(A)) == [ReleaseHost(A)]
        assert cluster.feed(HostUndrained(A)) == []
    assert granted(cluster.ask("cell")).host == "a"


def test_a_host_that_is_not_drained_cannot_be_undrained() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    before = cluster.core.view().hosts
    assert cluster.feed(HostUndrained(A)) == cluster.feed(HostUndrained(HostName("nowhere"))) == []
    assert cluster.core.view().hosts == before


def test_a_host_that_cannot_be_emptied_is_used_again() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.kernel("k", hosts="a", replicas=1)
    cluster.feed(HostDrained(HostName("a")))
    for _ in range(5):
        cluster.feed(TimeReached(), after_s=30.0)
    assert [host.state for host in cluster.core.view().hosts] == ["up"]
    assert granted(cluster.ask("cell", kernel="k")).host == "a"


def test_a_lost_host_s_replicas_are_placed_elsewhere() -> None:
    cluster = Cluster()
    for name in "abcd":
        cluster.host(name, 4)
    cluster.kernel("k", hosts="a b c")
    lease = granted(cluster.ask("cell", kernel="k"))
    effects = cluster.feed(HostDown(lease.host))
    assert [ended.why for ended in of(LeaseEnded, effects)] == ["host down"]
    assert of(KernelPlaced, effects) == [KernelPlaced(K, (HostName("d"),))]


def test_scaling_waits_for_its_samples_then_provisions_up_to_the_floor() -> None:
    cluster = scaled()
    cluster.host("a", 4)
    assert len(of(ProvisionHost, passes(cluster))) == 1
    assert not of(ProvisionHost, passes(cluster)), "the one on its way counts"


def test_scaling_releases_at_most_two_idle_hosts_a_pass_and_keeps_the_floor() -> None:
    cluster = scaled()
    for name in "abcdef":
        cluster.host(name, 4)
    first = of(ReleaseHost, passes(cluster))
    assert len(first) == 2
    for released in first:
        cluster.feed(HostDown(released.host))
    second = of(ReleaseHost, passes(cluster))
    for released in second:
        cluster.feed(HostDown(released.host))
    assert len(second) == 2
    assert not of(ReleaseHost, passes(cluster))


def test_scaling_releases_those_hosts_first_of_which_kernels_have_least() -> None:
    cluster = scaled()
    for name in "abcd":
        cluster.host(name, 4)
    for name, gpus in (("a", 3), ("b", 2), ("c", 1)):
        cluster.kernel(f"on {name}", gpus, 1, hosts=name)
    passes(cluster)
    assert {host.name for host in cluster.core.view().hosts if host.state != "up"} == {"c", "d"}


def test_scaling_releases_no_host_with_more_replicas_than_are_moved_away() -> None:
    cluster = scaled()
    for name in "abc":
        cluster.host(name, 4)
        for number in range(IDLE_REPLICAS_MAX + 1):
            cluster.kernel(f"{name}{number}", 1, 1, hosts=name)
    passes(cluster)
    assert {host.state for host in cluster.core.view().hosts} == {"up"}


@pytest.mark.parametrize(
    ("hosts", "committed", "step"),
    [
        (10, 80, ScalingStep(1, 0)),  # 1.05 x 10 hosts of load: 11 wanted
        (12, 80, ScalingStep(0, 1)),  # 1.1 x 10: 11 are enough
        (11, 80, ScalingStep(0, 0)),  # between the two nothing happens
        (20, 0, ScalingStep(0, 2)),
        (7, 0, ScalingStep(0, 0)),
        (48, 400, ScalingStep(0, 0)),
    ],
)
def test_buffered_scaling_compares_hosts_with_hosts_and_has_a_floor(
    hosts: int, committed: int, step: ScalingStep
) -> None:
    """Spec 1.7, with the paper's mistakes N2 and N3 put right."""
    load = ClusterLoad(hosts, 0, hosts * 8, committed, 8.0, 4, 48, 3, True)
    assert Buffered().step(load) == step
    assert Buffered().step(load._replace(sampled=False)) == ScalingStep(0, 0)


def test_a_host_that_does_not_come_is_given_up_and_asked_for_again_by_who_needs_it() -> None:
    cluster = Cluster(settings=CoreSettings(host_shape=HostShape(4), boot_max_s=60.0))
    cluster.host("a", 4)
    cluster.host("b", 4)
    (wanted,) = of(ProvisionHost, cluster.kernel("k"))
    told = [effect for _ in range(20) for effect in cluster.feed(TimeReached(), after_s=5.0)]
    assert of(CancelHost, told)[0] == CancelHost(wanted.reservation)
    (again,) = of(ProvisionHost, told)
    assert cluster.feed(HostNotProvisioned(again.reservation)) == []
    assert of(ProvisionHost, cluster.feed(TimeReached(), after_s=5.0))
    assert not of(ProvisionHost, cluster.feed(KernelEnded(K)))


def test_a_host_that_came_late_has_hosts_thought_to_take_longer() -> None:
    cluster = Cluster(settings=CoreSettings(host_shape=HostShape(4), boot_s=15.0))
    cluster.host("a", 4)
    cluster.host("b", 4)
    (wanted,) = of(ProvisionHost, cluster.kernel("k"))
    cluster.now += 114.0
    cluster.host("c", 4, reservation=wanted.reservation)
    assert cluster.core.image().mean_boot_s == pytest.approx(15.0 + BOOT_WEIGHT * (115.0 - 15.0))


def test_prewarmed_processes_are_kept_at_their_number_and_used_by_new_replicas() -> None:
    cluster = Cluster(change(notebook(), prewarm=Minimum(2)))
    assert cluster.host("a", 4) == [Prewarm(HostName("a"), 2)]
    cluster.feed(Prewarmed(HostName("a")))
    cluster.feed(Prewarmed(HostName("a")))
    cluster.host("b", 4)
    cluster.kernel("k", hosts="b", replicas=1)
    cluster.ask("fill", 4, 1000.0, hosts="b")
    effects = cluster.ask("cell", kernel="k")
    assert of(StartReplica, effects)[0].prewarmed
    assert of(Prewarm, effects) == [Prewarm(HostName("a"), 1)]
    cluster.feed(Prewarmed(HostName("a")))
    with pytest.raises(UnexpectedEvent, match="no answer about pre-warmed processes"):
        cluster.feed(Prewarmed(HostName("a")))


def test_after_a_failure_to_prewarm_there_is_a_pause() -> None:
    cluster = Cluster(change(notebook(), prewarm=Minimum(1)))
    cluster.host("a", 4)
    assert cluster.feed(PrewarmFailed(HostName("a"))) == []
    assert cluster.feed(TimeReached(), after_s=1.0) == []
    assert cluster.feed(TimeReached(), after_s=30.0) == [Prewarm(HostName("a"), 1)]


def test_littles_law_keeps_what_is_used_while_one_gets_ready() -> None:
    assert Little().target(2.0, 3.0, 2) == 3
    assert Little().target(0.0, 3.0, 2) == 1
    assert Little().target(1000.0, 3.0, 1) == 16


def test_processes_that_were_used_long_ago_count_less() -> None:
    rate = PrewarmRate(3.0)
    rate.used(0.0)
    assert rate.uses_per_s(0.0) == pytest.approx(1.0 / RATE_S)
    assert rate.uses_per_s(3 * RATE_S) < 0.05 / RATE_S


def moving_while_a_cell_waits(*, source_is_busy: bool) -> tuple[Cluster, StartReplica]:
    """A kernel whose replica leaves a drained host, a cell of it that waits, and a host that has the GPUs."""
    cluster = Cluster()
    for name in "abcd":
        cluster.host(name, 4)
    cluster.kernel("k", gpus=4, hosts="a b c")
    for name in "abc" if source_is_busy else "bc":
        cluster.ask(f"busy-{name}", gpus=4, hosts=name, ttl_s=1000.0)
    (start,) = of(StartReplica, cluster.feed(HostDrained(HostName("a"))))
    cluster.ask("busy-d", gpus=4, hosts="d", ttl_s=1000.0)
    assert of(LeaseQueued, cluster.ask("cell", gpus=4, kernel="k"))
    cluster.host("e", 4)
    return cluster, start


def test_a_cell_that_came_while_its_kernel_was_moving_is_moved_afterwards() -> None:
    cluster, start = moving_while_a_cell_waits(source_is_busy=False)
    (again,) = of(StartReplica, cluster.feed(ReplicaReady(start.migration)))
    assert again.host == "e", "its GPUs are there, and nothing else would bring it there"
    assert granted(cluster.feed(ReplicaReady(again.migration))).request == "cell"


def test_a_cell_that_came_before_a_move_was_given_up_is_moved_afterwards() -> None:
    cluster, _ = moving_while_a_cell_waits(source_is_busy=True)
    effects = cluster.feed(TimeReached(), after_s=301.0)
    assert of(MigrationFailed, effects)
    (again,) = of(StartReplica, effects)
    assert again.host == "e"
    assert granted(cluster.feed(ReplicaReady(again.migration))).request == "cell"


def test_a_cell_whose_host_is_used_again_runs_there_and_moves_nowhere() -> None:
    cluster, _ = moving_while_a_cell_waits(source_is_busy=False)
    effects = cluster.feed(TimeReached(), after_s=301.0)
    assert granted(effects).host == "a"
    assert not of(StartReplica, effects)
