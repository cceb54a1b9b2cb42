"""Policies written where they are tried: what the documentation shows, beside examples worked by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from replkernel_scheduler.policies.installed import OWN
from replkernel_scheduler.sim import Costs, SimulationError, Trace, Uniform, policy, simulate, sweep

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "policies.md"


@pytest.fixture(autouse=True)
def only_here() -> Iterator[None]:
    yield
    OWN.clear()


def written(name: str) -> None:
    """Run the page's block that has this class."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if f"class {name}" in block and "@policy" in block]
    assert len(block.splitlines()) <= 60
    exec(block, {})


def started(jobs: list[tuple[str, float, float, int]], way: str, cluster: str, **requested: float) -> object:
    rows = [
        {
            "job": job,
            "arrival_s": at,
            "duration_s": runs,
            "gpus": gpus,
            "requested_s": requested.get(job, runs),
        }
        for job, at, runs, gpus in jobs
    ]
    ran = simulate(Trace.of_rows(rows), way, cluster).jobs
    return dict(zip(ran["name"], ran["started_s"], strict=True))


def test_the_shortest_first_goes_by_what_is_predicted() -> None:
    written("ShortestFirst")
    jobs = [("a", 0.0, 10.0, 1), ("b", 1.0, 8.0, 1), ("c", 2.0, 2.0, 1), ("d", 3.0, 5.0, 1)]
    by_arrival = {"a": 0.0, "b": 10.0, "c": 18.0, "d": 20.0}
    assert started(jobs, "sq,m=1,discipline=fcfs", "1x1") == by_arrival
    assert started(jobs, "sq,m=1,discipline=shortest-first", "1x1") == {
        "a": 0.0,
        "c": 10.0,
        "d": 12.0,
        "b": 17.0,
    }
    wrong = started(jobs, "sq,m=1,discipline=shortest-first", "1x1", c=100.0)
    assert wrong == {"a": 0.0, "d": 10.0, "b": 15.0, "c": 23.0}, "a prediction that is wrong costs c its turn"


def test_the_narrowest_first() -> None:
    written("NarrowFirst")
    jobs = [("a", 0.0, 10.0, 4), ("wide", 1.0, 10.0, 4), ("two", 2.0, 10.0, 2), ("one", 3.0, 5.0, 1)]
    assert started(jobs, "easy-batch,backfill=none", "1x4") == {
        "a": 0.0,
        "wide": 10.0,
        "two": 20.0,
        "one": 20.0,
    }
    assert started(jobs, "easy-batch,backfill=none,order=narrow-first", "1x4") == {
        "a": 0.0, "one": 10.0, "two": 10.0, "wide": 20.0,
    }  # fmt: skip


POOL = Costs(job_load=Uniform(0.0, 0.0), job_pause=Uniform(0.0, 0.0))
"""Nothing is lost by stopping a job, so that times can be worked out by hand."""


def first_and_last(way: str, *jobs: tuple[str, float, float]) -> dict[object, tuple[object, object]]:
    """Return when each job first started and was over, on one GPU."""
    rows = [{"job": job, "arrival_s": at, "duration_s": runs, "gpus": 1} for job, at, runs in jobs]
    ran = simulate(Trace.of_rows(rows), way, "1x1", costs=POOL).jobs
    return {row["name"]: (row["started_s"], row["ended_s"]) for row in ran.rows()}


def test_tiresias_stops_who_has_had_a_gpu_hour_for_who_has_had_less() -> None:
    written("Tiresias")
    jobs = ("long", 0.0, 10_800.0), ("short", 60.0, 590.0)
    # Both begin in the first queue, where the long one came first: passes at 600, 1200, … leave it alone. At
    # 4200 it has had 3600 GPU-seconds, is in the second queue, and stops; the pass after the short one's end,
    # at 4800, has it go on with the 7200 s that are left.
    assert first_and_last("pool,preempt=tiresias,every=600", *jobs) == {
        "long": (600.0, 12_000.0), "short": (4200.0, 4790.0),
    }  # fmt: skip
    by_what_is_left = first_and_last("periodic,every=600", *jobs)
    assert by_what_is_left["short"] == (600.0, 1190.0)


def test_themis_serves_who_is_furthest_behind_its_fair_finish() -> None:
    written("FinishTimeFairness")
    # At 600 the long one would end 600 s late, 1.1 times what it takes alone; the short one 540 s late, 1.9
    # times.
    jobs = ("long", 0.0, 6000.0), ("short", 60.0, 590.0)
    assert first_and_last("pool,preempt=finish-time-fairness,every=600", *jobs) == {
        "short": (600.0, 1190.0), "long": (1200.0, 7200.0),
    }  # fmt: skip
    # Two that take the same: who came first is further behind, until the other has waited for as long.
    even = first_and_last(
        "pool,preempt=finish-time-fairness,every=600", ("a", 0.0, 590.0), ("b", 60.0, 590.0)
    )
    assert even == {"a": (600.0, 1190.0), "b": (1200.0, 1790.0)}


def test_a_pools_policy_that_is_not_there_is_told() -> None:
    trace = Trace.of_rows([{"job": "a", "arrival_s": 0, "duration_s": 5, "gpus": 1}])
    for way in ("pool", "pool,preempt=mine"):
        with pytest.raises(SimulationError, match="pool,preempt=NAME takes one of deferred, never, periodic"):
            simulate(trace, way)


def test_a_policy_of_this_process_is_swept_in_it_and_one_of_no_kind_is_told() -> None:
    written("NarrowFirst")
    trace = Trace.of_rows([{"job": "a", "arrival_s": 0, "duration_s": 5, "gpus": 1}])
    runs = sweep(trace, "easy-batch", "1x4", over={"order": ["fifo", "narrow-first"]}, processes=2)
    assert [run.summary["jobs.served"] for run in runs] == [1, 1]
    for name in ("colour.red", "placement", "placement.", "placement.a,b"):
        with pytest.raises(
            SimulationError, match=r"is not KIND\.NAME, as in placement\.mine; there are placement"
        ):
            policy(name)(dict)
