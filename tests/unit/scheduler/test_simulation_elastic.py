"""Jobs that are reshaped, as the command plays them: SideCar's case study as a trace, and all runs' laws."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.sim import summary
from replkernel_scheduler.sim.elastic_run import ElasticRun
from replkernel_scheduler.sim.elastic_way import elastic_way_named
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named
from replkernel_scheduler.sim.records import Cell, Job, Session
from replkernel_scheduler.sim.summary import RunSummary
from replkernel_scheduler.sim.task import Outcome, Task

from tests.support.examples import examples

FIRST = Job("1", 0.0, 429.0, 4, seconds_with=((2, 442.27), (4, 429.0)))
SECOND = Job("2", 180.0, 412.0, 4, seconds_with=((2, 515.0), (4, 412.0)))
HOUR_S = 3600.0


def played(jobs: list[Job], policy: str, plan: Plan) -> tuple[RunSummary, dict[str, tuple[Task, Outcome]]]:
    tasks: dict[str, tuple[Task, Outcome]] = {}
    way = elastic_way_named(policy)
    origin = jobs[0].at if jobs else 0.0
    run = ElasticRun(
        jobs, origin, way, plan, rows=lambda task, outcome: tasks.__setitem__(task.name, (task, outcome))
    )
    figures = run.run()
    return summary.of_run(figures, run.now, run.events, way, plan), tasks


@pytest.mark.parametrize(
    ("policy", "makespan_s", "second_trains_s"),
    [
        ("never-reshape", 1249, 807),
        ("sidecar,gain=any,costs=termination", 1143, 384),
        ("sidecar,gain=any", 845, 290),
    ],
)
def test_the_case_study_is_a_trace_that_the_command_plays(
    policy: str, makespan_s: float, second_trains_s: float
) -> None:
    found, tasks = played([FIRST, SECOND], policy, Plan(hosts=1, gpus_per_host=4, seed=3))
    assert found.cluster.makespan_hours * HOUR_S == pytest.approx(makespan_s, rel=0.05)
    assert tasks["2"][0].started == pytest.approx(second_trains_s, rel=0.05)


drawn_jobs = st.lists(
    st.tuples(st.floats(0, 900), st.floats(60, 4000), st.sampled_from([1, 2, 3, 4, 8])), max_size=14
)


@settings(max_examples=examples(60), deadline=None)
@given(
    drawn=drawn_jobs,
    policy=st.sampled_from(["sidecar", "termination", "never-reshape", "sidecar,efficiency=0.6"]),
    seed=st.integers(0, 3),
)
def test_every_job_is_served_and_its_parts_add_up(
    drawn: list[tuple[float, float, int]], policy: str, seed: int
) -> None:
    at, jobs = 0.0, []
    for number, (after_s, lasts_s, width) in enumerate(drawn):
        at += after_s
        jobs.append(Job(f"{number}", at, lasts_s, width))
    plan = Plan(hosts=2, gpus_per_host=8, seed=seed)
    found, tasks = played(jobs, policy, plan)
    assert found.jobs.served == len(jobs)
    assert found.cluster.committed_gpus_max <= 16
    for task, outcome in tasks.values():
        parts = task.parts
        assert outcome == "done"
        assert parts is not None
        total_s = parts.waited_s + parts.loaded_s + parts.ran_s + parts.paused_s
        assert total_s == pytest.approx(task.done - task.submitted)
        assert min(parts.waited_s, parts.loaded_s, parts.ran_s, parts.paused_s) >= -1e-6
        assert (parts.waited_s + parts.ran_s) / task.duration_s >= 1 - 1e-6, "slowdown"
    again, _ = played(jobs, policy, plan)
    assert msgspec.json.encode(again) == msgspec.json.encode(found)


def test_a_job_that_no_host_can_run_is_refused_and_counted() -> None:
    found, tasks = played([Job("wide", 0.0, 60.0, 9)], "sidecar", Plan(hosts=1, gpus_per_host=1))
    assert tasks["wide"][1] == "refused"
    assert found.not_served["refused"] == 1
    assert list(found.whys) == ["no host has the 9 GPUs"]


def test_a_guess_keeps_the_share_that_was_said() -> None:
    kind = elastic_way_named("sidecar,efficiency=0.75").kind(Job("a", 0.0, 300.0, 2), 4)
    samples = 4000.0
    assert sorted(kind.iteration_s) == [1, 2, 4]
    assert [round(kind.run_s(samples, gpus)) for gpus in (1, 2, 4)] == [450, 300, 200]


@pytest.mark.parametrize("policy", ["sidecar,efficiency=0.2", "termination,gain=0.1", "sidecar,costs=none"])
def test_an_option_that_cannot_be_is_told(policy: str) -> None:
    with pytest.raises(SimulationError, match="cannot be"):
        any_way_named(policy)


def test_cells_are_not_for_this_policy() -> None:
    records = [Session("a", 0.0, 9.0, 1), Cell("a", 1.0, 3.0, 1)]
    with pytest.raises(SimulationError, match="serves jobs"):
        ElasticRun(records, 0.0, elastic_way_named("sidecar"), Plan())


def test_a_trace_of_many_jobs_comes_to_an_end() -> None:
    dice = random.Random(5)
    jobs = [
        Job(f"{number}", number * 90.0, dice.uniform(60, 4000), dice.choice([1, 2, 4, 8]))
        for number in range(80)
    ]
    for policy in ("sidecar", "termination", "never-reshape"):
        found, _ = played(jobs, policy, Plan(hosts=4, gpus_per_host=8))
        assert found.jobs.served == 80
