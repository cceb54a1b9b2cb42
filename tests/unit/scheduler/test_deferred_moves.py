"""A deferral before NotebookOS's moves: the kernel's own hosts are given time to have the GPUs."""

from __future__ import annotations

import msgspec
from replkernel_scheduler.effects import MigrationFailed, StartReplica
from replkernel_scheduler.events import TimeReached
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.policies.migration_deferred import DeferredMove

from tests.unit.scheduler.cluster import Cluster, granted, of

DEFER_S = 20.0


def waiting() -> Cluster:
    """Kernel `one` is on a, whose GPU another kernel holds; b has a GPU that nobody wants."""
    policies = msgspec.structs.replace(notebook(), migration=DeferredMove(DEFER_S))
    cluster = Cluster(policies)
    cluster.host("a", 1)
    cluster.kernel("one", 1, 1, hosts="a")
    cluster.kernel("two", 1, 1, hosts="a")
    granted(cluster.ask("first", kernel="two", ttl_s=1000))
    cluster.host("b", 1)
    return cluster


def test_nothing_moves_while_the_deferral_lasts_and_a_replica_moves_after_it() -> None:
    cluster = waiting()
    assert not of(StartReplica, cluster.ask("second", kernel="one"))
    assert not of(StartReplica, cluster.feed(TimeReached(), after_s=DEFER_S - 1))
    (start,) = of(StartReplica, cluster.feed(TimeReached(), after_s=1.0))
    assert (start.kernel_id, start.host) == ("one", "b")


def test_nothing_moves_if_the_kernels_own_host_has_the_gpus_in_time() -> None:
    cluster = waiting()
    cluster.ask("second", kernel="one")
    (first,) = cluster.leases()
    assert granted(cluster.release(first, after_s=DEFER_S / 2)).host == "a"
    later = cluster.feed(TimeReached(), after_s=2 * DEFER_S)
    assert not of(StartReplica, later)
    assert not of(MigrationFailed, later)
    assert cluster.core.view().migrations == ()


def test_without_a_deferral_it_moves_at_once() -> None:
    cluster = Cluster(notebook())
    cluster.host("a", 1)
    cluster.kernel("one", 1, 1, hosts="a")
    cluster.kernel("two", 1, 1, hosts="a")
    granted(cluster.ask("first", kernel="two", ttl_s=1000))
    cluster.host("b", 1)
    assert of(StartReplica, cluster.ask("second", kernel="one"))


def test_a_core_that_goes_on_from_an_image_defers_to_the_same_time() -> None:
    cluster = waiting()
    cluster.ask("second", kernel="one")
    again = Cluster(msgspec.structs.replace(notebook(), migration=DeferredMove(DEFER_S)))
    again.core.restore(cluster.core.image())
    again.now = cluster.now
    assert again.core.deadline() == cluster.core.deadline()
    assert of(StartReplica, again.feed(TimeReached(), after_s=DEFER_S))
