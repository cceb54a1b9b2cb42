"""Finish-time fairness, worked by hand, and where it is told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.sim.fairness import Lived, finish_time_fairness, integral_of
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.records import Job, Record
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import RunSummary

from tests.support.examples import examples

TWO_GPUS = integral_of([2.0] * 10, 100.0)


def test_two_jobs_one_after_the_other_on_two_gpus() -> None:
    # Both want both GPUs for 100 s. While the first runs there are two, so its share is one GPU, on which it
    # would take 200 s. The second sees two jobs for 100 s and one for 100, 1.5 in the mean, and takes 200 s.
    first, second = finish_time_fairness([Lived(0, 100, 100, 2), Lived(0, 200, 100, 2)], TWO_GPUS)
    assert (first, second) == (pytest.approx(0.5), pytest.approx(200 / 150))


def test_who_wants_less_than_its_share_is_not_given_more() -> None:
    # One GPU of two for each of two: they run as alone, and whoever waits for 50 s is treated unfairly.
    alone, late = finish_time_fairness([Lived(0, 100, 100, 1), Lived(0, 150, 100, 1)], TWO_GPUS)
    assert (alone, late) == (pytest.approx(1.0), pytest.approx(1.5))


def test_gpus_that_come_and_go_count_in_the_mean_of_a_life() -> None:
    # 2 GPUs for 100 s, then 6: 4 in the mean of 200 s, of which two jobs have 2 each: on 2 it takes 200 s.
    course = integral_of([2.0, 6.0], 100.0)
    assert finish_time_fairness([Lived(0, 200, 100, 4), Lived(0, 200, 200, 1)], course)[0] == pytest.approx(1)
    assert course(150.0) == 500.0 and integral_of([], 1.0)(9.0) == 0.0


@settings(max_examples=examples(100), deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.floats(0, 500), st.floats(1, 500), st.floats(1, 300), st.integers(1, 8)), min_size=1
    )
)
def test_finish_time_fairness_is_what_the_definition_says(
    jobs: list[tuple[float, float, float, int]],
) -> None:
    lived = [Lived(*job) for job in jobs]
    found = finish_time_fairness(lived, integral_of([4.0] * 20, 100.0))
    for job, times in zip(lived, found, strict=True):
        done = job.submitted + job.took_s
        beside = sum(
            max(0.0, min(done, other.submitted + other.took_s) - max(job.submitted, other.submitted))
            for other in lived
        )
        contenders = beside / job.took_s
        ideal_s = job.alone_s * max(1.0, job.gpus * contenders / 4.0)
        assert times == pytest.approx(job.took_s / ideal_s, rel=1e-6)


def _played(policy: str) -> tuple[RunSummary, Picture]:
    jobs: list[Record] = [Job("a", 0.0, 100.0, 2), Job("b", 0.0, 100.0, 2), Job("c", 1000.0, 5.0, 1)]
    pictures: list[Picture] = []
    with Spool(jobs) as spool:
        run = play(spool, any_way_named(policy), Plan(hosts=1, gpus_per_host=2), pictured=pictures.append)
    return run, pictures[0]


def test_a_run_tells_it_with_bounded_slowdowns() -> None:
    run, picture = _played("easy-batch")
    fairness, bounded = run.jobs.finish_time_fairness, run.jobs.bounded_slowdown
    assert fairness is not None and bounded is not None
    assert (fairness.max, fairness.p50) == (pytest.approx(200 / 150), pytest.approx(1.0))
    assert run.jobs.unfair == pytest.approx(1 / 3)
    assert (bounded.max, bounded.p50) == (pytest.approx(2.0), 1.0), "a run of 5 s counts as 10 s"
    assert picture.fairness[-1] == fairness.max and picture.bounded_slowdown[-1] == bounded.max


def test_jobs_of_other_cores_have_it_too() -> None:
    for policy in ("sjf", "sq,m=1", "sidecar", "oracle"):
        run, _ = _played(policy)
        assert run.jobs.finish_time_fairness is not None, policy
        assert run.jobs.finish_time_fairness.max > 0
