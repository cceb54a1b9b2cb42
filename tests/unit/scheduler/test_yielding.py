"""What lingers gives way to an engine's own jobs: as much as they need, and nothing in vain."""

from __future__ import annotations

import random

import msgspec
import pytest
from replkernel_scheduler import yielding
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import LeaseGranted, ReclaimLease
from replkernel_scheduler.events import GpusAwaited, GpusWanted, LeaseRenewed
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.types import Fence, HostName, Lease

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


def test_so_many_jobs_are_looked_at_in_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yielding, "JOBS_MAX", 2)
    cluster = Cluster()
    cluster.host("a", 3)
    for name in ("one", "two", "three"):
        lingering(cluster, name, 1, "a")
    assert asked_back(cluster, GpusAwaited((A,), 1, 10**9)) == ["one", "two"]


def test_a_gpu_that_came_back_is_no_lease_of_the_jobs() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = lingering(cluster, "one", 1, "a")
    assert asked_back(cluster, GpusAwaited((A,), 1)) == ["one"]
    assert not [effect for effect in cluster.release(lease) if isinstance(effect, LeaseGranted)]
    assert cluster.leases() == []


def asked_for_jobs(cluster: Cluster, job: GpusAwaited, *spares: Lease) -> list[str]:
    event = GpusWanted((job,), tuple(lease.lease for lease in spares), cluster.now + 1.0)
    effects = cluster.feed(event)
    return [effect.lease.request for effect in effects if isinstance(effect, ReclaimLease)]


def test_nothing_is_asked_back_for_a_job_that_could_not_use_it() -> None:
    cluster = Cluster()
    cluster.host("a", 2, "A100", 40.0)
    cluster.host("b", 2, "H100", 80.0)
    lingering(cluster, "one", 2, "a")
    lingering(cluster, "two", 2, "b")
    assert asked_for_jobs(cluster, GpusAwaited((A, B), 1, gpu_model="L4")) == []
    assert asked_for_jobs(cluster, GpusAwaited((A, B), 1, vram_gb=83.0)) == []
    assert asked_for_jobs(cluster, GpusAwaited((A,), 1, gpu_model="H100")) == []
    assert asked_for_jobs(cluster, GpusAwaited((A, B), 1, vram_gb=45.0)) == ["two"]
    assert asked_for_jobs(cluster, GpusAwaited((A, B), 1, gpu_model="A100")) == ["one"]


def test_a_stuck_notebook_is_not_counted_on_for_a_job_also_after_a_restart() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    stuck = lingering(cluster, "stuck", 1, "a")
    lingering(cluster, "free", 1, "a")
    assert asked_for_jobs(cluster, GpusAwaited((A,), 1)) == ["stuck"]
    assert asked_for_jobs(cluster, GpusAwaited((A,), 1)) == [], "it is on its way back"
    cluster.feed(LeaseRenewed(stuck.lease, stuck.fence, stays=True))
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(cluster.core.image()), type=CoreImage)
    cluster.core = SchedulerCore(random.Random(0), notebook(), None, Fence(0))
    cluster.core.restore(image)
    assert asked_for_jobs(cluster, GpusAwaited((A,), 1)) == ["free"]


def test_gpus_that_a_job_gives_back_for_cells_are_no_other_jobs() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    jobs = lingering(cluster, "a-jobs", 1, "a")
    lingering(cluster, "rests", 1, "a")
    lingering(cluster, "longer", 1, "a")
    assert asked_for_jobs(cluster, GpusAwaited((A,), 1)) == ["a-jobs"]
    assert asked_for_jobs(cluster, GpusAwaited((A,), 1), jobs) == ["rests"]
    cluster.ask("cell", 3, hosts="a")
    assert asked_for_jobs(cluster, GpusAwaited((A,), 3)) == [], "a cell waits for all of it"
