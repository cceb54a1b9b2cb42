"""What lingers gives way to an engine's own jobs: as much as they need, and nothing in vain."""

from __future__ import annotations

from replkernel_scheduler.effects import LeaseGranted, ReclaimLease
from replkernel_scheduler.events import GpusAwaited, GpusWanted
from replkernel_scheduler.types import HostName, Lease

from tests.unit.scheduler.cluster import Cluster

A, B = HostName("a"), HostName("b")


def lingering(cluster: Cluster, request: str, gpus: int, host: str) -> Lease:
    granted = next(
        effect for effect in cluster.ask(request, gpus, hosts=host) if isinstance(effect, LeaseGranted)
    )
    cluster.linger(granted.lease)
    return granted.lease


def asked_back(cluster: Cluster, *jobs: GpusAwaited) -> list[str]:
    effects = cluster.feed(GpusWanted(jobs))
    assert all(isinstance(effect, ReclaimLease) for effect in effects)
    return [effect.lease.request for effect in effects if isinstance(effect, ReclaimLease)]


def test_the_longest_lingering_lease_is_asked_back_and_no_more_than_needed() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    for name in ("one", "two", "three"):
        lingering(cluster, name, 1, "a")
    assert asked_back(cluster, GpusAwaited((A,), 2)) == ["one"], "one GPU is idle"
    assert asked_back(cluster, GpusAwaited((A,), 2)) == [], "it is on its way back"


def test_nothing_is_asked_back_where_there_are_idle_gpus_or_where_it_would_not_do() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    cluster.host("b", 4)
    lingering(cluster, "one", 2, "a")
    cluster.ask("busy", 3, hosts="b")
    assert asked_back(cluster, GpusAwaited((A, B), 1)) == [], "b has an idle one"
    assert asked_back(cluster, GpusAwaited((B,), 2)) == [], "a cell runs there"
    assert asked_back(cluster, GpusAwaited((A, B), 3)) == [], "a has not so many, and b not free"
    assert asked_back(cluster, GpusAwaited((A, B, HostName("none")), 2)) == ["one"]


def test_jobs_do_not_count_on_the_same_gpus() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    for name in ("one", "two", "three"):
        lingering(cluster, name, 1, "a")
    assert asked_back(cluster, GpusAwaited((A,), 1, count=3)) == ["one", "two"]


def test_the_larger_job_comes_first_and_the_host_with_the_least_to_take() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    cluster.host("b", 2)
    lingering(cluster, "one", 2, "a")
    lingering(cluster, "two", 1, "b")
    assert asked_back(cluster, GpusAwaited((A, B), 1), GpusAwaited((A, B), 2)) == ["two", "one"]


def test_a_gpu_that_came_back_is_no_lease_of_the_jobs() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = lingering(cluster, "one", 1, "a")
    assert asked_back(cluster, GpusAwaited((A,), 1)) == ["one"]
    assert not [effect for effect in cluster.release(lease) if isinstance(effect, LeaseGranted)]
    assert cluster.leases() == []
