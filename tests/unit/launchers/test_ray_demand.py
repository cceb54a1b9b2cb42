"""Which jobs of Ray wait for GPUs, out of what Ray tells its autoscaler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from replkernel_scheduler.events import GpusAwaited, GpusWanted
from replkernel_scheduler.types import HostName
from replkernel_server.launchers.protocol import JobsWaiting, JobWaiting
from replkernel_server.launchers.ray.demand import Demand, Room, jobs_waiting, wishes
from replkernel_server.launchers.waiting import AGAIN_S, SOON_S, WaitingJobs

A = Room("ray-a", {"GPU": 4.0, "CPU": 8.0}, {"GPU": 0.0, "CPU": 2.0}, {"zone": "x"})
B = Room("ray-b", {"GPU": 2.0, "CPU": 8.0}, {"CPU": 8.0}, {"zone": "y"})


def request(labels: dict[str, tuple[int, list[str]]] | None = None, **resources: float) -> Any:
    rules = [
        SimpleNamespace(label_key=name, operator=operator, label_values=values)
        for name, (operator, values) in (labels or {}).items()
    ]
    return SimpleNamespace(
        resources_bundle=resources, label_selectors=[SimpleNamespace(label_constraints=rules)]
    )


def gang(name: str, strategy: str, *requests: Any) -> Any:
    part = SimpleNamespace(resource_requests=list(requests))
    return SimpleNamespace(
        details=f"{name}:{strategy}|PENDING", bundle_selectors=[part], requests=list(requests)
    )


def waiting(*requests: Any, gangs: tuple[Any, ...] = ()) -> JobsWaiting:
    state = SimpleNamespace(
        pending_resource_requests=[SimpleNamespace(request=one, count=2) for one in requests],
        pending_gang_resource_requests=list(gangs),
    )
    return jobs_waiting(wishes(state, ["ours"], ["ours", "pg"]), [A, B])


def jobs(*requests: Any, gangs: tuple[Any, ...] = ()) -> list[JobWaiting]:
    return list(waiting(*requests, gangs=gangs).jobs)


def test_a_job_is_told_with_the_hosts_that_could_have_it() -> None:
    assert jobs(request(GPU=1.0)) == [JobWaiting(("ray-a", "ray-b"), 1, 2)]
    assert jobs(request(GPU=3.0)) == [JobWaiting(("ray-a",), 3, 2)]
    assert jobs(request(GPU=0.5)) == [JobWaiting(("ray-a", "ray-b"), 1, 2)], "a part takes a whole one"
    assert jobs(request(GPU=9.0)) == []
    assert jobs(request(CPU=1.0), request(GPU_group_0_abc=1.0)) == [], "they want no GPU of a host's"


def test_a_job_that_lacks_more_than_gpus_has_nothing_asked_back() -> None:
    assert jobs(request(GPU=1.0, CPU=4.0)) == [JobWaiting(("ray-b",), 1, 2)]
    assert jobs(request(GPU=1.0, special=1.0)) == []
    assert jobs(request({"zone": (1, ["x", "z"])}, GPU=1.0)) == [JobWaiting(("ray-a",), 1, 2)]
    assert jobs(request({"zone": (2, ["x"])}, GPU=1.0)) == [JobWaiting(("ray-b",), 1, 2)]


def test_a_placement_group_counts_by_bundle_or_as_a_whole_and_ours_never_does() -> None:
    two = (request(GPU=2.0), request(GPU=2.0))
    assert jobs(gangs=(gang("pg", "SPREAD", *two),)) == [JobWaiting(("ray-a", "ray-b"), 2, 2)]
    assert jobs(gangs=(gang("pg", "STRICT_PACK", *two),)) == [JobWaiting(("ray-a",), 4, 1)]
    assert jobs(gangs=(gang("ours", "PACK", *two), gang("new", "PACK", *two))) == []


def test_demand_seen_by_two_looks_is_told_once_and_its_end_as_well() -> None:
    demand = Demand()
    one = SimpleNamespace(
        pending_resource_requests=[SimpleNamespace(request=request(GPU=1.0), count=1)],
        pending_gang_resource_requests=[],
    )
    many, none = (
        wishes(one, [], []),
        wishes(SimpleNamespace(pending_resource_requests=[], pending_gang_resource_requests=[]), [], []),
    )
    assert demand.read(many, [A]) is None, "most jobs wait for a moment only"
    assert demand.read(many, [A]) == JobsWaiting((JobWaiting(("ray-a",), 1),))
    assert demand.read(many, [A]) is None
    assert demand.read(none, [A]) == JobsWaiting(())


def test_the_core_hears_of_who_waits_for_as_long_as_he_does() -> None:
    waits = WaitingJobs()
    word = JobsWaiting((JobWaiting(("ray-a",), 1),))
    event = GpusWanted((GpusAwaited((HostName("ray-a"),), 1),))
    assert waits.due(0.0) == []
    assert waits.told(word, 0.0) == [event]
    assert waits.told(word, SOON_S / 2) == [], "it changes often"
    assert waits.due(SOON_S) == [event]
    assert waits.due(SOON_S + AGAIN_S / 2) == []
    assert waits.due(SOON_S + AGAIN_S) == [event]
    assert waits.told(JobsWaiting(()), 20.0) == []
    assert waits.due(100.0) == []
