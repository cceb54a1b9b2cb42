"""Sentences of the paper on Lazer, as restated in the specification, section 3."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.policies.preempt_deferred import Deferred
from replkernel_scheduler.policies.preempt_never import NeverPreempt
from replkernel_scheduler.policies.preempt_periodic import Periodic
from replkernel_scheduler.policies.preempt_shortest import Shortest
from replkernel_scheduler.pool.arrivals import DEFERRAL_MAX_S, Arrivals, Watch
from replkernel_scheduler.pool.core import PoolCore
from replkernel_scheduler.pool.predicting import Bayes, Grid, Predictor, Uniform
from replkernel_scheduler.pool.protocol import Dice, Preempting
from replkernel_scheduler.pool.types import (
    Context,
    Deferral,
    LoadJob,
    PauseJob,
    PoolLoaded,
    PoolOver,
    PoolPaused,
    PoolTime,
    PoolWanted,
    RefusePoolJob,
)
from replkernel_scheduler.sim import summary
from replkernel_scheduler.sim.costs import Costs
from replkernel_scheduler.sim.costs import Uniform as Between
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.pool_simulation import PoolSimulation
from replkernel_scheduler.sim.pool_way import pool_way_named
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.summary import RunSummary
from replkernel_scheduler.sim.task import Task

from tests.support.examples import examples

LOAD, PAUSE = 30.0, 5.0
PLAN = Plan(
    hosts=1, gpus_per_host=4,
    costs=Costs(job_load=Between(LOAD, LOAD), job_pause=Between(PAUSE, PAUSE)),
)  # fmt: skip


class Fixed(Shortest):
    """Defers by a fixed time, and keeps what it is told."""

    defers = True

    def __init__(self, defer_s: float) -> None:
        super().__init__()
        self._defer_s = defer_s
        self.learned: list[Deferral] = []

    def defer_s(self, context: Context, dice: Dice) -> float:
        return self._defer_s

    def learn(self, deferral: Deferral) -> None:
        self.learned.append(deferral)


def core(policy: Preempting, gpus: int = 4) -> PoolCore:
    return PoolCore(gpus, policy, Random(0))


def job(name: str, gpus: int, run_s: float) -> PoolWanted:
    return PoolWanted(name, gpus, run_s, LOAD, PAUSE)


def running(policy: Preempting, *jobs: PoolWanted) -> PoolCore:
    """Return a core on which these jobs compute since 30."""
    made = core(policy)
    for wanted in jobs:
        assert made.handle(wanted, 0.0) == [LoadJob(wanted.job)]
    for wanted in jobs:
        made.handle(PoolLoaded(wanted.job), 30.0)
    return made


def play(jobs: list[Job], policy: str, plan: Plan = PLAN) -> tuple[dict[str, Task], RunSummary]:
    tasks: dict[str, Task] = {}
    way = pool_way_named(policy)
    simulation = Checked(jobs, 0.0, way, plan, rows=lambda task, outcome: tasks.__setitem__(task.name, task))
    figures = simulation.run()
    return tasks, summary.of_run(figures, simulation.now, simulation.events, way, plan)


class Checked(PoolSimulation):
    """One whose core's laws are checked after each event."""

    def _feed(self, event: object, now: float) -> None:
        super()._feed(event, now)  # type: ignore[arg-type]
        self.core.check_invariants()
        holds = sum(
            run.task.gpus for run in self._runs.values() if run.state in ("loading", "running", "pausing")
        )
        assert holds <= self.core.book.gpus, "a GPU has two jobs"


def test_3_2_an_empty_cluster_starts_a_job() -> None:
    assert core(Deferred()).handle(job("a", 4, 100), 0.0) == [LoadJob("a")]


def test_3_2_a_shorter_newcomer_stops_the_longest_and_loads_when_that_is_saved() -> None:
    made = running(Shortest(), job("long", 2, 1000), job("longer", 2, 2000))
    assert made.handle(job("short", 2, 100), 40.0) == [PauseJob("longer", True)]
    made.check_invariants()
    assert made.handle(PoolPaused("longer"), 45.0) == [LoadJob("short")]


def test_3_2_nobody_is_stopped_for_a_longer_one_or_in_vain() -> None:
    made = running(Shortest(), job("a", 2, 100), job("b", 2, 1000))
    assert made.handle(job("longer", 1, 5000), 40.0) == []
    assert made.handle(job("wide", 4, 500), 40.0) == []


def test_3_2_idle_gpus_are_counted_before_anybody_is_stopped() -> None:
    made = running(Shortest(), job("a", 1, 1000), job("b", 1, 2000))
    assert made.handle(job("c", 3, 100), 40.0) == [PauseJob("b", True)]


def test_3_2_victims_that_are_not_needed_go_on() -> None:
    made = running(Shortest(), job("small", 1, 3000), job("wide", 3, 2000))
    assert made.handle(job("c", 3, 100), 40.0) == [PauseJob("wide", True)]


def test_3_1_a_job_that_loads_is_stopped_at_once_and_its_loading_was_futile() -> None:
    tasks, run = play([Job("k", 0, 5000, 4), Job("k+1", 100, 2000, 4), Job("k+2", 120, 50, 4)], "srtf")
    first, second = tasks["k+1"].parts, tasks["k+2"].parts
    assert first is not None and second is not None
    assert first.futile_s == pytest.approx(15.0)  # It loads from 105, when k is saved, until 120.
    assert tasks["k+2"].bound == 120.0
    assert run.cluster.preemptions == 2


def test_3_2_a_deferral_locks_its_victims_and_takes_effect_when_its_time_has_come() -> None:
    policy = Fixed(20.0)
    made = running(policy, job("a", 4, 1000))
    assert made.handle(job("b", 4, 100), 40.0) == []
    assert made.handle(job("c", 4, 50), 45.0) == []  # a is locked, so c waits.
    assert made.deadline() == 60.0
    assert made.handle(PoolTime(), 60.0) == [PauseJob("a", True)]
    assert made.handle(PoolPaused("a"), 65.0) == [LoadJob("b")]


def test_3_2_a_deferral_below_half_a_second_is_none() -> None:
    made = running(Fixed(0.4), job("a", 4, 1000))
    assert made.handle(job("b", 4, 100), 40.0) == [PauseJob("a", True)]


def test_3_3_a_deferred_job_that_fits_starts_before_those_that_wait() -> None:
    made = running(Fixed(50.0), job("a", 2, 61), job("b", 2, 1000))
    assert made.handle(job("deferred", 2, 500), 40.0) == []
    assert made.handle(job("waits", 2, 2000), 41.0) == []
    assert made.handle(PoolOver("a"), 91.0) != []
    assert made.book.jobs["deferred"].state == "loading"
    assert not made.book.jobs["b"].locked


def test_3_3_the_shortest_that_fits_is_next_and_wide_ones_are_passed() -> None:
    made = running(NeverPreempt(), job("a", 2, 100), job("b", 2, 1000))
    for wanted in (job("wide", 4, 10), job("long", 2, 90), job("short", 1, 50)):
        assert made.handle(wanted, 40.0) == []
    assert made.handle(PoolOver("a"), 130.0) == [LoadJob("short")]


def test_3_3_after_a_day_no_longer_job_passes_one_that_finds_no_room() -> None:
    made = running(NeverPreempt(patience=24), job("a", 2, 90_000), job("b", 2, 200_000))
    assert made.handle(job("wide", 4, 300), 40.0) == []
    assert made.handle(job("longer", 1, 301), 50.0) == []
    assert made.handle(job("shorter", 1, 299), 60.0) == []
    assert made.handle(PoolOver("a"), 90_030.0) == [LoadJob("shorter")]  # It has less left than the wide one.
    made.handle(PoolLoaded("shorter"), 90_060.0)
    assert made.handle(job("newcomer", 1, 1000), 90_100.0) == []  # A GPU is idle, but spoken for.
    assert made.handle(PoolOver("shorter"), 90_359.0) == []
    assert made.handle(PoolOver("b"), 200_030.0) == [LoadJob("wide")]
    made.check_invariants()


def test_3_3_without_a_bound_and_before_it_longer_ones_pass() -> None:
    for patience, ends in ((0.0, 90_030.0), (24.0, 86_000.0)):
        made = running(Shortest(patience), job("a", 2, 90_000), job("b", 2, 200_000))
        assert made.handle(job("wide", 4, 300_000), 40.0) == []
        assert made.handle(job("longer", 2, 400_000), 50.0) == []
        assert made.handle(PoolOver("a"), ends) == [LoadJob("longer")]


def test_3_3_the_bound_leaves_the_order_of_remaining_times_alone() -> None:
    """A long job that others overtake because they are shorter is not starved by want of room."""
    made = running(Shortest(patience=24), job("a", 4, 200_000))
    for name, run_s in (("long", 300_000), ("short", 250_000)):
        assert made.handle(job(name, 4, run_s), 40.0) == []
    assert made.handle(PoolOver("a"), 200_030.0) == [LoadJob("short")]


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000), policy=st.sampled_from(["sjf", "srtf", "lazer,by=random"]))
def test_3_3_wide_jobs_are_served_though_narrow_ones_come_without_end(seed: int, policy: str) -> None:
    dice = Random(seed)
    jobs = [Job(f"{n}", 50.0 * n, 160.0 + 60 * dice.random(), 2) for n in range(800)]
    jobs += [Job(f"wide{n}", 100.0 + n, 150.0, 4) for n in range(3)]
    tasks, _ = play(
        sorted(jobs, key=lambda job: job.at), f"{policy},patience=2", Plan(hosts=1, gpus_per_host=4)
    )
    for number in range(3):
        wide = tasks[f"wide{number}"]
        # Those before it are served first; each takes a drain, a load and its run.
        assert wide.bound - wide.submitted <= 7200 + (number + 1) * 700


def test_3_4_the_need_is_the_last_arrival_that_would_have_stopped_the_newcomer_while_it_loaded() -> None:
    policy = Fixed(0.0)
    made = running(policy, job("a", 4, 10_000))
    made.handle(job("b", 4, 1000), 100.0)
    made.handle(PoolPaused("a"), 105.0)
    made.handle(job("c", 4, 2000), 110.0)  # Longer than b: it would not.
    made.handle(job("d", 4, 500), 120.0)
    made.handle(PoolTime(), 135.0)
    (learned, *_) = policy.learned
    assert (learned.chosen_s, learned.needed_s) == (0.0, 20.0)
    assert learned.context == Context(1800.0, 1000.0, LOAD, PAUSE)


def test_3_4_without_such_an_arrival_nothing_was_needed() -> None:
    policy = Fixed(0.0)
    made = running(policy, job("a", 4, 10_000))
    made.handle(job("b", 4, 1000), 100.0)
    made.handle(job("late", 4, 10), 136.0)
    made.handle(PoolTime(), 140.0)
    assert policy.learned[0].needed_s == 0.0


def test_3_4_arrivals_count_for_an_hour_also_where_nobody_comes_after_them() -> None:
    arrivals = Arrivals()
    for now in (0.0, 1800.0, 1801.0, 1802.0):
        arrivals.saw(PoolWanted("any", 4, 500.0, LOAD, PAUSE), 0, now)
    assert arrivals.between_s(3600.0) == 900.0
    assert arrivals.between_s(3601.0) == 1200.0
    arrivals.saw(PoolWanted("late", 4, 500.0, LOAD, PAUSE), 0, 5401.5)
    assert arrivals.between_s(5401.5) == 1800.0


def test_3_4_no_deferral_is_thought_to_need_longer_than_the_longest() -> None:
    watch = Watch(Context(1800.0, 1000.0, 500.0, PAUSE), 4, 0.0, 0.0)
    watch.saw(PoolWanted("late", 4, 500.0, LOAD, PAUSE), 0, 3 * DEFERRAL_MAX_S)
    assert watch.result().needed_s == DEFERRAL_MAX_S


def test_3_5_between_two_passes_nobody_starts_or_stops() -> None:
    made = core(Periodic(60.0))
    assert made.handle(job("a", 4, 1000), 10.0) == []
    assert made.deadline() == 60.0
    assert made.handle(PoolTime(), 60.0) == [LoadJob("a")]
    made.handle(PoolLoaded("a"), 90.0)
    assert made.handle(job("b", 4, 100), 95.0) == []
    assert made.handle(PoolTime(), 120.0) == [PauseJob("a", True)]
    assert made.handle(PoolPaused("a"), 125.0) == [LoadJob("b")]
    assert made.deadline() == 180.0  # a waits again, though nobody came.


def learned_loss(predictor: Predictor, trials: int = 110, judged: int = 100) -> float:
    """Return the mean |X - F| after `trials`, where F follows the context."""
    dice, total = Random(5), 0.0
    for number in range(trials + judged):
        context = Context(10 + 600 * dice.random(), 1000 * dice.random(), 15 + 45 * dice.random(), 5.0)
        chosen_s = predictor.predict(context, dice)
        needed_s = 60.0 if context.load_s > 37 else 10.0
        total += abs(chosen_s - needed_s) if number >= trials else 0.0
        predictor.learn(Deferral(context, chosen_s, needed_s))
    return total / judged


def test_3_4_the_predictor_learns_what_random_and_grid_search_cannot() -> None:
    bayes = learned_loss(Bayes())
    assert bayes < 0.5 * learned_loss(Uniform())
    assert bayes < 0.5 * learned_loss(Grid())


def test_3_4_where_there_is_nothing_to_learn_nobody_is_deferred() -> None:
    """Needs that come by chance, mostly none: a constant 0 is the best there is."""
    predictor, dice, chosen = Bayes(), Random(1), []
    for number in range(220):
        context = Context(10 + 600 * dice.random(), 1000 * dice.random(), 15 + 45 * dice.random(), 5.0)
        chosen_s = predictor.predict(context, dice)
        needed_s = 100 * dice.random() if dice.random() < 0.15 else 0.0
        predictor.learn(Deferral(context, chosen_s, needed_s))
        chosen += [chosen_s] if number >= 180 else []
    assert sum(chosen) / len(chosen) < 2


def test_3_4_the_first_deferrals_are_one_of_each_tenth() -> None:
    predictor, dice = Bayes(), Random(1)
    drawn = [predictor.predict(Context(1.0, 1.0, 1.0, 1.0), dice) for _ in range(10)]
    assert sorted(int(chosen_s // 10) for chosen_s in drawn) == list(range(10))
    assert drawn != sorted(drawn)


def test_an_impossible_option_of_lazer_is_told() -> None:
    made = core(Shortest())
    assert made.handle(job("wide", 5, 1), 0.0) == [RefusePoolJob("wide", "the pool has 4 GPUs")]
    made.handle(job("a", 4, 100), 0.0)
    for event in (job("a", 1, 1), PoolOver("a"), PoolPaused("nobody")):
        with pytest.raises(SchedulerError):
            made.handle(event, 1.0)
    for policy in (
        "srtf,every=60",
        "periodic,every=0",
        "lazer,by=luck",
        "sjf,patience=-1",
        "periodic,patience=1",
    ):
        with pytest.raises(SimulationError, match="There are periodic,every=SECONDS"):
            pool_way_named(policy)


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    policy=st.sampled_from(
        [
            "sjf",
            "srtf",
            "srtf,patience=0.1",
            "periodic,every=60",
            "lazer,by=random",
            "lazer,by=grid",
            "lazer,by=random,patience=0.02",
        ]
    ),
)
def test_every_second_counts_once_and_work_is_conserved(seed: int, policy: str) -> None:
    dice = Random(seed)
    jobs, at = [], 0.0
    for number in range(40):
        at += dice.choice([0.0, dice.expovariate(1 / 40)])
        jobs.append(
            Job(f"{number}", at, dice.choice([1.0, 20.0, 2000 * dice.random() + 0.1]), dice.randint(1, 4))
        )
    plan = Plan(hosts=1, gpus_per_host=4, seed=seed)
    tasks, run = play(jobs, policy, plan)
    assert run.jobs.served == 40
    for task in tasks.values():
        parts = task.parts
        assert parts is not None
        spent_s = parts.waited_s + parts.loaded_s + parts.ran_s + parts.paused_s
        assert task.done - task.submitted == pytest.approx(spent_s, abs=1e-6)
        assert parts.ran_s == pytest.approx(task.duration_s, abs=1e-6)
        assert parts.futile_s <= parts.loaded_s + 1e-9
    assert run.jobs.slowdown is not None and run.jobs.slowdown.p50 >= 1 - 1e-9
    # Nobody needs fewer GPU-seconds than the work itself.
    assert run.cluster.committed_gpu_hours * 3600 >= sum(job.duration_s * job.width for job in jobs) - 1e-3
    again, _ = play(jobs, policy, plan)
    assert {name: task.done for name, task in again.items()} == {
        name: task.done for name, task in tasks.items()
    }
