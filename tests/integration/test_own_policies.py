"""Policies written where they are tried: what the documentation shows, beside examples worked by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from replkernel_scheduler.policies.installed import OWN
from replkernel_scheduler.sim import SimulationError, Trace, policy, simulate, sweep

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
