"""Sentences of the paper on aggressive oversubscription, as restated in the specification, section 4."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.policies.queues_multi import MultiQueue
from replkernel_scheduler.sim import summary
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.job_simulation import JobSimulation
from replkernel_scheduler.sim.job_way import job_way_named
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Job, Pattern, Record, Session
from replkernel_scheduler.sim.summary import RunSummary
from replkernel_scheduler.sim.task import Task

from tests.support.examples import examples


def play(jobs: list[Job], policy: str, hosts: int = 1, cores: int = 1) -> tuple[dict[str, Task], RunSummary]:
    """Play jobs, and return their tasks and the summary."""
    tasks: dict[str, Task] = {}
    way, plan = job_way_named(policy), Plan(hosts=hosts, gpus_per_host=cores)
    simulation = JobSimulation(
        jobs, 0.0, way, plan, rows=lambda task, outcome: tasks.__setitem__(task.name, task)
    )
    figures = simulation.run()
    simulation.core.check_invariants()
    return tasks, summary.of_run(figures, simulation.now, simulation.events, way, plan)


def batch(name: str, at: float, run_s: float, width: int = 1) -> Job:
    return Job(name, at, run_s, width, requested_s=run_s, queue="1")


def notebook(name: str, at: float, prolog_s: float, epilog_s: float, *phases: float) -> Job:
    run_s = prolog_s + epilog_s + sum(phases)
    return Job(name, at, run_s, 1, requested_s=run_s, queue="0", pattern=Pattern(prolog_s, epilog_s, phases))


def test_4_2_two_busy_processes_on_a_core_take_twice_their_time_and_a_fifth_more() -> None:
    tasks, _ = play([batch("a", 0, 100), batch("b", 0, 100)], "sq,m=2")
    assert tasks["a"].ended == tasks["b"].ended == pytest.approx(240.0)


def test_4_2_a_process_alone_on_its_core_is_not_slowed() -> None:
    tasks, _ = play([batch("a", 0, 100)], "sq,m=4")
    assert tasks["a"].ended == 100.0


def test_4_2_a_pace_lasts_only_as_long_as_somebody_is_beside() -> None:
    tasks, _ = play([batch("a", 0, 100), batch("b", 40, 25)], "sq,m=2")
    assert tasks["b"].ended == pytest.approx(40 + 25 * 2.4)
    assert tasks["a"].ended == pytest.approx(100 + (25 * 2.4 - 25))


def test_4_2_idle_phases_slow_nobody_and_are_not_slowed() -> None:
    tasks, _ = play([batch("a", 0, 100), notebook("n", 0, 300, 7, 10)], "sq,m=2")
    assert tasks["a"].ended == 100.0
    assert tasks["n"].ended == 317.0


def test_4_2_idle_lengths_are_fixed_while_busy_ones_stretch() -> None:
    tasks, _ = play([batch("a", 0, 1000), notebook("n", 0, 5, 7, 10, 20, 30)], "sq,m=2")
    assert tasks["n"].ended == pytest.approx(5 + 10 * 2.4 + 20 + 30 * 2.4 + 7)


def test_4_2_a_parallel_job_advances_with_its_slowest_process() -> None:
    tasks, _ = play([batch("wide", 0, 100, 2), batch("one", 0, 1000)], "sq,m=2", cores=2)
    assert tasks["wide"].ended == pytest.approx(240.0)


def test_4_4_the_ceiling_without_waiting_is_multiplicity_times_overhead() -> None:
    _, run = play([batch(f"{number}", 0, 100) for number in range(4)], "sq,m=4")
    assert run.jobs.waited == 0
    assert run.jobs.slowdown is not None and run.jobs.slowdown.max == pytest.approx(4.8)


def test_4_4_slowdown_counts_the_wait() -> None:
    tasks, run = play([batch("a", 0, 100), batch("b", 0, 50)], "sq,m=1")
    assert tasks["b"].bound - tasks["b"].submitted == 100.0
    assert run.jobs.slowdown is not None and run.jobs.slowdown.max == pytest.approx((100 + 50) / 50)


def test_4_4_percent_of_150_nodes_for_interactive_jobs() -> None:
    assert [MultiQueue(r).parts(150)[0].nodes for r in (1, 2, 3)] == [1, 3, 4]


def test_4_4_work_not_jobs_is_what_90_percent_means() -> None:
    jobs = [batch(f"{number}", 0, 1) for number in range(99)] + [batch("long", 0, 99)]
    _, run = play(jobs, "sq,m=1", cores=100)
    assert run.cluster.work_done_at_h["90%"] == pytest.approx(99 / 3600)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("sq,m=0", "'m=0' cannot be. There are m from 1 to 64"),
        ("sq,m=two", "'m=two' cannot be"),
        ("sq,colour=1", "'colour=1' cannot be"),
        ("sq,r=1", "sq takes other numbers: sq,m=4 or mq,r=2,mi=4,mb=1"),
        ("sq,discipline=luck", "There is no discipline policy 'luck'; installed are easy, fcfs"),
    ],
)
def test_a_way_that_cannot_be_is_told(policy: str, told: str) -> None:
    with pytest.raises(SimulationError) as ended:
        job_way_named(policy)
    assert told in str(ended.value)


def test_sessions_are_none_of_its_business() -> None:
    records: list[Record] = [Session("s", 0.0, 10.0, 1)]
    with pytest.raises(SimulationError, match="the trace has sessions with cells"):
        JobSimulation(records, 0.0, job_way_named("sq"), Plan()).run()


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    policy=st.sampled_from(["sq,m=1", "sq,m=3", "sq,m=2,discipline=fcfs", "mq,r=34,mi=4,mb=2"]),
)
def test_work_is_conserved_and_nobody_is_faster_than_alone(seed: int, policy: str) -> None:
    dice = random.Random(seed)
    jobs, at = [], 0.0
    for number in range(40):
        at += dice.choice([0.0, dice.expovariate(0.1)])
        if dice.random() < 0.5:
            jobs.append(
                batch(f"{number}", at, dice.choice([1.0, 7.5, 100 * dice.random() + 0.1]), dice.randint(1, 4))
            )
        else:
            phases = [dice.choice([0.0, 10 * dice.random()]) for _ in range(2 * dice.randint(0, 3))] + [1.0]
            jobs.append(notebook(f"{number}", at, dice.random(), 0.0, *phases))
    tasks, run = play(jobs, policy, hosts=3, cores=2)
    way = job_way_named(policy)
    ceiling = 1.2 * max(part.multiplicity for part in way.queues.parts(3))
    done = [task for task in tasks.values() if task.bound or task.ended]
    assert run.jobs.served + sum(run.not_served.values()) == 40
    for task in done:
        ran_s = task.ended - task.started
        assert task.duration_s - 1e-6 <= ran_s <= max(1.0, ceiling) * task.duration_s + 1e-6
        assert task.done - task.submitted == pytest.approx((task.bound - task.submitted) + ran_s)
    assert run.jobs.slowdown is not None and run.jobs.slowdown.p50 >= 1 - 1e-9
    again, _ = play(jobs, policy, hosts=3, cores=2)
    assert {name: task.ended for name, task in again.items()} == {n: t.ended for n, t in tasks.items()}
