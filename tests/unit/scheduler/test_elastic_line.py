"""Who waits for a launch is asked in order of arrival, and nobody in vain; as if everybody were asked.

Choices are compared by the last ends alone, and made on hosts that changed: as if by all jobs, on all hosts.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.elastic.book import Book, Outlook, Training
from replkernel_scheduler.elastic.line import Line
from replkernel_scheduler.elastic.protocol import Reshaping
from replkernel_scheduler.elastic.types import SIDECAR, TERMINATION, JobType, ReshapeCosts, TrainingWanted
from replkernel_scheduler.policies.reshape_grow import GrowOnly
from replkernel_scheduler.policies.reshape_never import NeverReshape
from replkernel_scheduler.policies.reshape_sidecar import SideCar
from replkernel_scheduler.sim.elastic_simulation import Arrival, ElasticSimulation

from tests.support.examples import examples

SIZES = [(1,), (1, 2), (2, 4), (4,), (8,)]


def wanted(number: int, sizes: tuple[int, ...]) -> TrainingWanted:
    return TrainingWanted(f"j{number}", JobType("t", 1, dict.fromkeys(sizes, 1.0)), 10.0)


@given(
    st.lists(st.sampled_from(SIZES), max_size=30),
    st.lists(st.integers(0, 29)),
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
)
def test_everybody_who_may_find_room_is_asked_once_in_order(
    kinds: list[tuple[int, ...]], gone: list[int], rooms: list[int]
) -> None:
    line, waiting = Line(), [wanted(number, sizes) for number, sizes in enumerate(kinds)]
    for each in waiting:
        line.join(each)
    for number in {number for number in gone if number < len(waiting)}:
        line.leave(f"j{number}")
    waiting = [each for each in waiting if each.job in line]
    assert len(line) == len(waiting)
    assert line.least() == min((each.type.least for each in waiting), default=0)
    for room in rooms:  # GPUs that became idle: whoever fits takes its fewest, and the next one has less.
        left, expected = room, []
        for each in waiting:
            if each.type.least <= left:
                left -= each.type.least
                expected.append(each.job)
        left, launched, asked = room, [], []
        line.changed()
        for each in line.in_order():
            asked.append(int(each.job[1:]))
            if each.type.least <= left:
                left -= each.type.least
                line.leave(each.job)
                line.changed()
                launched.append(each.job)
            else:
                line.in_vain(each)
        assert launched == expected
        assert asked == sorted(set(asked))
        assert len(asked) <= len(launched) + (len(launched) + 1) * len(SIZES)
        waiting = [each for each in waiting if each.job not in launched]


class AskingEverybody(Line):
    """A line in which nobody is known to be asked in vain."""

    def in_vain(self, wanted: TrainingWanted) -> None:
        pass


class LookingEverywhere(Book):
    """A book that looks at every job's end, and on every host."""

    def __init__(self, hosts: tuple[int, ...], costs: ReshapeCosts) -> None:
        super().__init__(hosts, costs)
        self.waiting = AskingEverybody()

    def outlook(self, now: float) -> Outlook:
        ends = {job: self.end(training, now) for job, training in self.trainings.items()}
        last, first, second = "", 0.0, 0.0
        for job, end in ends.items():
            if end > first:
                last, first, second = job, end, first
            elif end > second:
                second = end
        return Outlook(last, first, second, ends.__getitem__, now)

    def worth_a_look(self, wanted: TrainingWanted) -> range:
        return range(len(self.hosts))


elastic_jobs = st.lists(
    st.tuples(
        st.floats(0, 3000), st.sampled_from([*SIZES, (1, 2, 4, 8)]), st.floats(1, 4000), st.floats(0.7, 1.0)
    ),
    max_size=25,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    elastic_jobs,
    st.sampled_from([(8,), (4, 4), (8, 2, 4)]),
    st.sampled_from([SIDECAR, TERMINATION, ReshapeCosts(init_s=5.0, early_s=6.0)]),
    st.sampled_from([SideCar, GrowOnly, NeverReshape, lambda: SideCar(gain=-1e9)]),
)
def test_the_same_is_decided_as_by_looking_at_everybody_everywhere(
    drawn: list[tuple[float, tuple[int, ...], float, float]],
    hosts: tuple[int, ...],
    costs: ReshapeCosts,
    policy: type[Reshaping],
) -> None:
    jobs = [
        Arrival(
            at, TrainingWanted(f"j{number}", JobType("t", 1, {gpus: gpus**better for gpus in sizes}), run)
        )
        for number, (at, sizes, run, better) in enumerate(drawn)
    ]
    stories = []
    for book in (Book(hosts, costs), LookingEverywhere(hosts, costs)):
        simulation = ElasticSimulation(jobs, hosts, costs, policy(), 1)
        simulation.core.book = book
        simulation.run()
        stories.append([(job.launched, job.over, job.shrunk, job.grown) for job in simulation.jobs.values()])
    assert stories[0] == stories[1]


@pytest.mark.parametrize("count", [10, 1000])
def test_few_jobs_are_looked_at_however_many_train(count: int) -> None:
    looked: list[str] = []

    class Watched(Book):
        def end(self, training: Training, now: float) -> float:
            looked.append(training.wanted.job)
            return super().end(training, now)

    book, kind = Watched((8,) * count, SIDECAR), JobType("t", 1, {4: 1.0, 8: 1.5})
    for number in range(count):
        training = Training(TrainingWanted(f"j{number}", kind, 1000.0 + 40 * number), number, 8, 0.0)
        training.state = "running"
        book.waiting.join(training.wanted)
        book.launch(f"j{number}", training)
    assert book.outlook(100.0).score().makespan == book.end(book.trainings[f"j{count - 1}"], 100.0)
    assert len(looked) <= 5
