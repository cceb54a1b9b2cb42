"""Sentences of the paper on SideCar, as restated in the specification, section 2."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.elastic.book import Book, Outlook, Training
from replkernel_scheduler.elastic.core import ElasticCore
from replkernel_scheduler.elastic.epochs import fit_accuracy
from replkernel_scheduler.elastic.protocol import Reshaping
from replkernel_scheduler.elastic.types import (
    SIDECAR,
    TERMINATION,
    JobType,
    Launch,
    RefuseTraining,
    Reshape,
    ReshapeCosts,
    TrainingOver,
    TrainingRuns,
    TrainingWanted,
)
from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.policies.reshape_grow import GrowOnly
from replkernel_scheduler.policies.reshape_never import NeverReshape
from replkernel_scheduler.policies.reshape_sidecar import SideCar
from replkernel_scheduler.sim.elastic_simulation import Arrival, ElasticSimulation

from tests.paper.sidecar import AS_PRINTED, CASE_SEED, case_study, waiting
from tests.support.examples import examples

LINEAR = JobType("linear", 10, {1: 1.0, 2: 1.0, 4: 1.0, 5: 1.0})
QUICK = ReshapeCosts(init_s=8.0, terminate_s=2.0, process_start_s=2.0, process_stop_s=1.0, checkpoint_s=1.0,
                     grow_s=0.0, early_s=6.0)  # fmt: skip


def book_with(gpus: int, *running: tuple[str, JobType, float, int], costs: ReshapeCosts = QUICK) -> Book:
    """Return a book of one host on which jobs run since 0."""
    book = Book((gpus,), costs)
    for name, kind, samples, taken in running:
        training = Training(TrainingWanted(name, kind, samples), 0, taken, 0.0)
        training.state = "running"
        book.waiting.join(training.wanted)
        book.launch(name, training)
    return book


def test_2_1_iterations_left_depend_on_the_number_of_gpus() -> None:
    assert LINEAR.run_s(100, 1) == 10
    assert LINEAR.run_s(100, 2) == 5
    assert LINEAR.run_s(101, 2) == 6


def test_2_2_a_new_job_pays_start_and_end_around_its_iterations() -> None:
    book = book_with(4)
    assert book.new_end(TrainingWanted("n", LINEAR, 100), 2, False, 1000.0) == 1000 + (8 + 2) + 5 + (
        1 + 1 + 2
    )


def test_2_2_a_reshaped_job_pays_checkpoint_stop_and_start_and_goes_on_with_what_is_left() -> None:
    book = book_with(4, ("r", LINEAR, 400, 4))
    training = book.trainings["r"]
    assert book.end(training, 5.0) == 5 + 5 + 4
    assert book.reshaped_end(training, 2, 5.0) == 5 + (1 + 1 + 2) + 10 + 4


def test_2_2_the_costs_of_the_case_study() -> None:
    assert (SIDECAR.start_s, SIDECAR.down_s, SIDECAR.up_s, SIDECAR.joins_s) == (174, 27, 37, 110)
    assert (TERMINATION.start_s, TERMINATION.down_s, TERMINATION.up_s, TERMINATION.joins_s) == (
        174,
        204,
        242,
        204,
    )


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.0, 1e6), max_size=6),
    st.sampled_from("abcdef"),
    st.floats(0.0, 1e6),
    st.none() | st.floats(0.0, 1e6),
)
def test_2_3_a_choice_is_judged_by_the_ends_of_all_jobs(
    ends: dict[str, float], changed: str, end: float, new: float | None
) -> None:
    after = {
        **ends,
        **({changed: end} if changed in ends else {}),
        **({"new": new} if new is not None else {}),
    }
    last, first, second = "", 0.0, 0.0
    for job, ends_at in sorted(ends.items(), key=lambda each: each[1]):
        last, first, second = job, ends_at, first
    score = Outlook(last, first, second, ends.__getitem__, 0.0).score(
        new, changed if changed in ends else None, end, 3, 7.0
    )
    assert score.makespan == max(after.values(), default=0.0)
    assert score.completions == pytest.approx(sum(after.values()) - sum(ends.values()), abs=1e-3)
    assert score[2:] == (3, 7.0)


def test_2_4_a_donor_gives_what_leaves_it_an_allowed_size() -> None:
    """With sizes 4 and 5 and five GPUs the printed loop misses that it can give one."""
    donor = JobType("donor", 10, {4: 1.0, 5: 1.0})
    newcomer = TrainingWanted("n", JobType("n", 10, {1: 1.0}), 1000)
    launch = SideCar().launch(book_with(5, ("r", donor, 5000, 5)), newcomer, Random(0), 0.0)
    assert launch == Launch("n", 0, 1, "r")


def test_2_4_exactly_one_donor_and_none_where_gpus_are_idle() -> None:
    newcomer = TrainingWanted("n", JobType("n", 10, {2: 1.0}), 1000)
    full = book_with(4, ("a", LINEAR, 5000, 2), ("b", LINEAR, 9000, 2))
    assert SideCar().launch(full, newcomer, Random(0), 0.0) is None  # Each could give one only.
    free = book_with(6, ("a", LINEAR, 5000, 2), ("b", LINEAR, 9000, 2))
    assert SideCar().launch(free, newcomer, Random(0), 0.0) == Launch("n", 0, 2)


def test_2_3_an_unrelated_long_job_does_not_make_all_choices_equal() -> None:
    newcomer = TrainingWanted("n", JobType("n", 10, {1: 1.0, 2: 1.0}), 1000)
    book = book_with(7, ("long", LINEAR, 1e6, 5))
    assert SideCar().launch(book, newcomer, Random(0), 0.0) == Launch("n", 0, 2)


def test_2_5_growing_must_gain() -> None:
    book = book_with(4, ("r", LINEAR, 100, 2))
    assert SideCar().grow(book, 0.0) is None
    assert AS_PRINTED.grow(book, 0.0) == Reshape("r", 4)
    assert SideCar().grow(book_with(4, ("r", LINEAR, 10_000, 2)), 0.0) == Reshape("r", 4)


def test_2_6_a_job_that_is_reshaped_is_left_alone_until_it_trains_again() -> None:
    core = ElasticCore((4,), QUICK, SideCar(), Random(0))
    core.handle(TrainingWanted("a", JobType("a", 10, dict.fromkeys((1, 2, 3, 4), 1.0)), 10_000), 0.0)
    core.handle(TrainingRuns("a"), 10.0)
    one = JobType("n", 10, {1: 1.0})
    assert core.handle(TrainingWanted("b", one, 10_000), 20.0) == [
        Reshape("a", 3, "b"),
        Launch("b", 0, 1, "a"),
    ]
    assert core.handle(TrainingWanted("c", one, 10_000), 21.0) == []
    core.check_invariants()
    assert core.handle(TrainingRuns("a"), 26.0) == [Reshape("a", 2, "c"), Launch("c", 0, 1, "a")]
    core.check_invariants()


def test_2_8_growing_only_starts_small_and_takes_nothing_from_anybody() -> None:
    book = book_with(4, ("a", LINEAR, 10_000, 4))
    assert GrowOnly().launch(book, TrainingWanted("n", LINEAR, 100), Random(0), 0.0) is None
    assert GrowOnly().launch(book_with(4), TrainingWanted("n", LINEAR, 100), Random(0), 0.0) == Launch(
        "n", 0, 1
    )


def test_2_8_the_default_draws_a_size_once_and_keeps_it() -> None:
    book, policy, dice = book_with(5, ("a", LINEAR, 10_000, 4)), NeverReshape(), Random(3)
    wanted = TrainingWanted("n", LINEAR, 100)
    drawn = {policy.launch(book, wanted, dice, 0.0) for _ in range(50)}
    assert len(drawn) == 1


@pytest.mark.parametrize(
    ("policy", "costs", "makespan", "start"),
    [
        (NeverReshape(), SIDECAR, 1249, 807),
        (AS_PRINTED, TERMINATION, 1143, 384),
        (AS_PRINTED, SIDECAR, 845, 290),
    ],
)
def test_the_case_study_ends_within_5_percent_of_each_published_time(
    policy: Reshaping, costs: ReshapeCosts, makespan: float, start: float
) -> None:
    simulation = ElasticSimulation(case_study(), (4,), costs, policy, CASE_SEED)
    second = simulation.run()["2"]
    assert simulation.makespan == pytest.approx(makespan, rel=0.05)
    assert second.started == pytest.approx(start, rel=0.05)
    first = simulation.jobs["1"]
    if policy is AS_PRINTED:
        assert first.stopped_s == (204 if costs.restarts else 27)
        assert second.stopped_s == (242 if costs.restarts else 37)


def test_2_7_the_fit_finds_the_curve_it_was_shown_and_leaves_an_outlier_out() -> None:
    k = [10.0 * step for step in range(1, 60)]
    accuracy = [1 - (1 / (0.02 * at + 1.5) + 0.08) for at in k]
    accuracy[20] = 0.05
    fit = fit_accuracy(k, accuracy)
    assert fit is not None and fit.used < len(k)
    assert fit.iterations(0.85) == pytest.approx((1 / (0.15 - 0.08) - 1.5) / 0.02, rel=0.05)
    assert fit.accuracy(300.0) == pytest.approx(1 - (1 / 7.5 + 0.08), abs=0.005)


def test_2_7_beyond_the_asymptote_nothing_is_promised() -> None:
    k = [10.0 * step for step in range(1, 60)]
    fit = fit_accuracy(k, [1 - (1 / (0.02 * at + 1.5) + 0.2) for at in k])
    assert fit is not None
    assert fit.iterations(0.9) is None
    assert fit_accuracy([1.0, 2.0], [0.1, 0.2]) is None


def test_an_impossible_option_of_sidecar_is_told() -> None:
    core = ElasticCore((2,), QUICK, SideCar(), Random(0))
    wide = TrainingWanted("w", JobType("w", 1, {4: 1.0}), 10)
    assert core.handle(wide, 0.0) == [RefuseTraining("w", "no host has the 4 GPUs")]
    core.handle(TrainingWanted("a", LINEAR, 100), 0.0)
    with pytest.raises(SchedulerError, match="asked for twice"):
        core.handle(TrainingWanted("a", LINEAR, 100), 0.0)
    with pytest.raises(SchedulerError, match="not launched, or is over"):
        core.handle(TrainingOver("nobody"), 0.0)


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    policy=st.sampled_from([SideCar(), AS_PRINTED, GrowOnly(), NeverReshape()]),
    costs=st.sampled_from([SIDECAR, TERMINATION, QUICK]),
)
def test_no_gpu_has_two_jobs_and_everybody_trains_all_it_has(
    seed: int, policy: Reshaping, costs: ReshapeCosts
) -> None:
    dice = Random(seed)
    jobs, at = [], 0.0
    for number in range(15):
        at += dice.choice([0.0, dice.expovariate(1 / 60)])
        sizes = dice.sample([1, 2, 3, 4], dice.randint(1, 3))
        kind = JobType(f"{number}", 1, {size: 0.2 + dice.random() for size in sizes})
        jobs.append(Arrival(at, TrainingWanted(f"{number}", kind, 1 + 500 * dice.random())))
    simulation = Checked(jobs, (4, 3), costs, policy, seed)
    stories = simulation.run()
    assert len(stories) + len(simulation.refused) == 15
    for story in stories.values():
        kind = story.wanted.type
        trained_s = story.over - costs.finish_s - story.started - story.stopped_s
        assert story.at <= story.launched < story.started
        assert trained_s >= story.wanted.samples / max(map(kind.rate, kind.iteration_s)) - 1e-6
        assert trained_s <= story.wanted.samples / min(map(kind.rate, kind.iteration_s)) + 2 * (
            1 + story.shrunk + story.grown
        )
    again = ElasticSimulation(jobs, (4, 3), costs, policy, seed).run()
    assert {job: story.over for job, story in again.items()} == {job: s.over for job, s in stories.items()}


class Checked(ElasticSimulation):
    """One whose core's laws are checked after each event."""

    def _feed(self, event: object, now: float) -> None:
        super()._feed(event, now)  # type: ignore[arg-type]
        self.core.check_invariants()


def test_workload_four_a_newcomer_goes_where_its_model_of_gpu_ends_it_sooner() -> None:
    fast, slow = (JobType("job", 1, {1: second, 2: second}) for second in (1.0, 4.0))
    wanted = TrainingWanted("j", slow, 2000.0, {"new": fast})
    core = ElasticCore((8, 2), SIDECAR, SideCar(), Random(0), ("old", "new"))
    assert core.handle(wanted, 0.0) == [Launch("j", 1, 2)], "two fast ones before eight slow ones"
    simulation = ElasticSimulation([Arrival(0.0, wanted)], (8, 2), SIDECAR, SideCar(), models=("old", "new"))
    trained = simulation.run()["j"]
    assert trained.over - trained.started == pytest.approx(1000.0 + SIDECAR.finish_s), (
        "2,000 by two, at 1 s each"
    )


def test_who_waits_is_who_has_come_and_was_not_launched() -> None:
    kind = JobType("any", 1, {4: 1.0})
    arrivals = [Arrival(float(at), TrainingWanted(f"{at}", kind, 400.0)) for at in (0, 50, 60)]
    simulation = ElasticSimulation(arrivals, (4,), SIDECAR, NeverReshape())
    stories = simulation.run().values()
    # One after the other on 4 GPUs: at 60 s the second waits, at 61 s both of the later ones.
    assert [waiting(stories, at) for at in (0, 50, 60, 61)] == [0, 0, 1, 2]
    assert waiting(stories, simulation.makespan) == 0
