"""The core of jobs that share processors: who starts where and when, and its laws under any events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.jobs.core import JobsCore
from replkernel_scheduler.jobs.lengths import ANY_S, Lengths
from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.jobs.reservation import Reservation
from replkernel_scheduler.jobs.shape import Shape, shape
from replkernel_scheduler.jobs.table import NodeTable
from replkernel_scheduler.jobs.types import JobOver, JobWanted, NodeShape, Part, Place, RefuseJob, StartJob
from replkernel_scheduler.policies.discipline_easy import Easy
from replkernel_scheduler.policies.discipline_fcfs import Fcfs
from replkernel_scheduler.policies.queues_multi import MultiQueue
from replkernel_scheduler.policies.queues_single import SingleQueue

from tests.support.examples import examples


class Cluster:
    """A core, and the names of what started so far."""

    def __init__(
        self,
        nodes: int,
        cores: int,
        queues: Queues | None = None,
        discipline: Discipline | None = None,
        memory_gb: float = 0.0,
    ) -> None:
        node = NodeShape(cores, memory_gb)
        self.core = JobsCore(nodes, node, queues or SingleQueue(1), discipline or Easy(), self)
        self.started: list[StartJob] = []
        self.done: dict[str, float] = {}

    def done_s(self, job: str, now: float) -> float:
        return self.done.get(job, 0.0)

    def wants(self, job: str, width: int, requested_s: float, now: float, **more: float | bool) -> list[str]:
        return self._took(JobWanted(job, width, requested_s, **more), now)  # type: ignore[arg-type]

    def over(self, job: str, now: float) -> list[str]:
        return self._took(JobOver(job), now)

    def _took(self, event: JobWanted | JobOver, now: float) -> list[str]:
        effects = self.core.handle(event, now)
        self.core.check_invariants()
        self.started += [effect for effect in effects if isinstance(effect, StartJob)]
        return [effect.job for effect in effects if isinstance(effect, StartJob)]


class LooksAtAll:
    """EASY as it is defined: each that waits behind the first is looked at, in order of arrival."""

    def serve(
        self, line: Line, fresh: JobWanted | None, now: float
    ) -> Iterator[tuple[JobWanted, tuple[Place, ...]]]:
        while line.waiting:
            wanted, spread = next(iter(line.waiting.values()))
            places = line.table.find(spread, wanted.memory_gb)
            if places is None:
                break
            yield wanted, places
        first, *others = [*line.waiting.values(), None]
        for wanted, spread in filter(None, others):
            assert first is not None
            places = Reservation(line, *first, now).lets(wanted, spread, now)
            if places is not None:
                yield wanted, places


@pytest.mark.parametrize(
    ("width", "spread"),
    [
        (1, Shape(1, 1, 1)),
        (12, Shape(1, 12, 12)),
        (24, Shape(2, 12, 12)),
        (25, Shape(5, 5, 5)),
        (13, Shape(13, 1, 1)),
        (151, Shape(13, 12, 7)),
    ],
)
def test_a_job_is_spread_over_the_fewest_nodes_that_share_it_evenly(width: int, spread: Shape) -> None:
    assert shape(width, cores=12, nodes=150) == spread


def test_a_job_wider_than_the_nodes_is_refused_at_once() -> None:
    cluster = Cluster(2, 4)
    assert shape(9, cores=4, nodes=2) is None
    (effect,) = cluster.core.handle(JobWanted("wide", 9, 10.0), 0.0)
    assert effect == RefuseJob("wide", "it fits on no empty nodes of the queue all")
    assert cluster.wants("narrow", 8, 10.0, 0.0) == ["narrow"]


def test_a_core_takes_no_more_processes_than_the_multiplicity_says() -> None:
    cluster = Cluster(1, 2, SingleQueue(2))
    assert [bool(cluster.wants(f"{number}", 1, 10.0, 0.0)) for number in range(5)] == [True] * 4 + [False]
    assert cluster.core.lines[0].table.loads == [[2, 2]]


def test_a_job_goes_to_the_nodes_with_the_fewest_processes_and_their_emptiest_cores() -> None:
    cluster = Cluster(2, 2, SingleQueue(2))
    for number in range(3):
        cluster.wants(f"{number}", 1, 10.0, 0.0)
    assert [effect.places for effect in cluster.started] == [((0, (0,)),), ((1, (0,)),), ((0, (1,)),)]


def test_first_come_first_served_lets_nobody_pass() -> None:
    cluster = Cluster(1, 4, discipline=Fcfs())
    cluster.wants("a", 3, 100.0, 0.0)
    assert cluster.wants("wide", 4, 100.0, 1.0) == []
    assert cluster.wants("short", 1, 1.0, 2.0) == []
    assert cluster.over("a", 100.0) == ["wide"]


def test_easy_lets_pass_who_ends_before_the_first_one_can_start() -> None:
    cluster = Cluster(1, 4)
    cluster.wants("a", 3, 100.0, 0.0)
    assert cluster.wants("wide", 4, 100.0, 1.0) == []
    assert cluster.wants("long", 1, 100.0, 2.0) == []
    assert cluster.wants("short", 1, 98.0, 2.0) == ["short"]


def test_easy_lets_a_long_one_pass_that_leaves_the_reserved_cores_alone() -> None:
    cluster = Cluster(2, 4)
    cluster.wants("a", 4, 100.0, 0.0)
    cluster.wants("b", 2, 200.0, 0.0)
    assert cluster.wants("wide", 4, 100.0, 1.0) == []
    assert cluster.wants("long", 2, 1e6, 2.0) == ["long"]
    assert cluster.over("a", 100.0) == ["wide"]


def test_nobody_passes_who_slows_a_job_that_is_thought_to_end_before_the_first_one_starts() -> None:
    cluster = Cluster(2, 1, SingleQueue(2))
    for name, requested_s in (("a", 100.0), ("b", 150.0), ("c", 1000.0)):
        assert cluster.wants(name, 1, requested_s, 0.0) == [name]
    assert cluster.wants("wide", 2, 10.0, 0.0) == []
    assert cluster.wants("short", 1, 1.0, 0.0) == []


def test_on_shared_nodes_who_does_not_end_before_passes_on_other_nodes_only() -> None:
    cluster = Cluster(1, 2, SingleQueue(2))
    cluster.wants("a", 2, 100.0, 0.0)
    cluster.wants("b", 1, 1000.0, 0.0)
    assert cluster.wants("wide", 2, 10.0, 0.0) == []
    assert cluster.wants("long", 1, 1e6, 0.0) == []
    cluster = Cluster(2, 2, SingleQueue(2))
    for name in ("a", "b", "c"):
        assert cluster.wants(name, 2, 1000.0 if name == "b" else 100.0, 0.0) == [name]
    assert cluster.wants("wide", 4, 10.0, 0.0) == []
    assert cluster.wants("short", 1, 40.0, 0.0) == ["short"]


def test_a_job_whose_fullest_core_is_another_one_is_not_slowed_and_may_be_joined() -> None:
    cluster = Cluster(1, 3, SingleQueue(2))
    cluster.wants("a", 2, 100.0, 0.0)
    cluster.wants("b", 2, 1000.0, 0.0)
    assert [place.cores for effect in cluster.started for place in effect.places] == [(0, 1), (2, 0)]
    assert cluster.wants("wide", 3, 10.0, 0.0) == []
    assert cluster.wants("beside a", 1, 50.0, 0.0) == ["beside a"]


def test_the_end_that_machines_tell_decides_when_the_first_job_may_start() -> None:
    def passes(done_s: float) -> bool:
        cluster = Cluster(2, 1, SingleQueue(2))
        cluster.wants("a", 2, 100.0, 0.0)
        cluster.wants("b", 1, 1000.0, 0.0)
        cluster.done = {"a": done_s}
        assert cluster.wants("wide", 2, 10.0, 10.0) == []
        return bool(cluster.wants("c", 1, 60.0, 10.0))

    assert passes(10.0)
    assert not passes(90.0)


def test_memory_is_a_limit_and_an_empty_node_has_all_of_it_again() -> None:
    cluster = Cluster(1, 4, SingleQueue(2), memory_gb=1.0)
    for number in range(3):
        assert cluster.wants(f"{number}", 1, 10.0, 0.0, memory_gb=0.3)
    assert not cluster.wants("much", 1, 10.0, 0.0, memory_gb=1.0)
    assert not cluster.over("2", 1.0) and not cluster.over("0", 1.0)
    assert cluster.over("1", 1.0) == ["much"]
    (effect,) = cluster.core.handle(JobWanted("more", 2, 10.0, 0.6), 1.0)
    assert isinstance(effect, RefuseJob)


def test_interactive_jobs_have_nodes_of_their_own() -> None:
    cluster = Cluster(100, 1, MultiQueue(2.9, mi=2, mb=1))
    assert [part.part.nodes for part in cluster.core.lines] == [2, 98]
    started = [cluster.wants(f"i{n}", 1, 10.0, 0.0, interactive=True) for n in range(5)]
    assert [bool(names) for names in started] == [True] * 4 + [False]
    assert cluster.wants("batch", 98, 10.0, 0.0) == ["batch"]


def test_an_event_that_cannot_follow_is_a_fault_and_changes_nothing() -> None:
    cluster = Cluster(1, 1)
    cluster.wants("a", 1, 10.0, 0.0)
    cluster.wants("b", 1, 10.0, 0.0)
    for event in (JobWanted("a", 1, 1.0), JobOver("b"), JobOver("nobody")):
        with pytest.raises(SchedulerError):
            cluster.core.handle(event, 1.0)
    assert cluster.over("a", 2.0) == ["b"]


WANTED = st.tuples(st.integers(1, 9), st.integers(0, 60), st.sampled_from([0.0, 0.1, 0.7]), st.booleans())
QUEUES = st.sampled_from([SingleQueue(1), SingleQueue(3), MultiQueue(34, 2, 1)])


@settings(max_examples=examples(60), deadline=None)
@given(
    jobs=st.lists(WANTED, max_size=40),
    ends=st.lists(st.integers(0, 1000), min_size=80, max_size=80),
    queues=QUEUES,
    discipline=st.sampled_from([Easy(), Fcfs()]),
)
def test_laws_hold_and_everybody_is_served_in_the_end(
    jobs: list[tuple[int, int, float, bool]], ends: list[int], queues: Queues, discipline: Discipline
) -> None:
    cluster = Cluster(4, 4, queues, discipline, memory_gb=2.0)
    running: list[str] = []
    refused = 0
    for number, (width, requested_s, memory_gb, interactive) in enumerate(jobs):
        before = len(cluster.started)
        effects = cluster.core.handle(
            JobWanted(f"{number}", width, requested_s, memory_gb, interactive), float(number)
        )
        cluster.core.check_invariants()
        refused += sum(isinstance(effect, RefuseJob) for effect in effects)
        cluster.started += [effect for effect in effects if isinstance(effect, StartJob)]
        running += [effect.job for effect in cluster.started[before:]]
        if running and ends[number] % 2:
            running += cluster.over(running.pop(ends[number] % len(running)), number + 0.5)
    for at, end in enumerate(ends):
        if running:
            running += cluster.over(running.pop(end % len(running)), 1000.0 + at)
    assert not running
    assert len(cluster.started) + refused == len(jobs)
    assert all(not line.waiting and not line.running for line in cluster.core.lines)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(1, 12)), max_size=40),
    st.sampled_from([0.0, 6.0]),
)
def test_easy_starts_whom_a_look_at_everybody_would_start(
    wishes: list[tuple[int, int, int]], memory_gb: float
) -> None:
    def played(discipline: Discipline) -> list[tuple[StartJob, float]]:
        cluster = Cluster(3, 3, discipline=discipline, memory_gb=memory_gb)
        arrivals, ends, found, now = [], list[tuple[float, str]](), list[tuple[StartJob, float]](), 0.0
        for number, (after, width, runs) in enumerate(wishes):
            now += after
            arrivals.append((now, f"{number}", width, float(runs)))
        while arrivals or ends:
            ends.sort(reverse=True)
            if ends and (not arrivals or ends[-1][0] <= arrivals[0][0]):
                at, job = ends.pop()
                cluster.over(job, at)
            else:
                at, job, width, runs_s = arrivals.pop(0)
                cluster.wants(job, width, runs_s + 0.1, at, memory_gb=float(width % 3))
            for start in cluster.started[len(found) :]:
                found.append((start, at))
                ends.append((at + wishes[int(start.job)][2], start.job))
        return found

    assert played(Easy()) == played(LooksAtAll())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_the_first_that_is_short_enough_is_found_as_by_a_look_at_all(steps: list[tuple[bool, int]]) -> None:
    lengths, there = Lengths(), dict[int, JobWanted]()
    for number, (comes, length) in enumerate(steps):
        if comes or not there:
            there[number] = JobWanted(f"{number}", 1, float(length))
            lengths.add(number, there[number])
        else:
            gone = sorted(there)[length % len(there)]
            del there[gone]
            lengths.remove(gone)
        for after in (-1, number // 2, number):
            for limit_s in (-1.0, 0.0, 4.0, ANY_S):
                fit = [(one, job) for one, job in there.items() if one > after and job.requested_s <= limit_s]
                assert lengths.first(after, limit_s) == (fit[0] if fit else None)
        assert lengths.count == len(there)


def test_easy_looks_at_few_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand jobs that may not pass are no more work than ten."""
    looks = 0
    lets = Reservation.lets

    def counted(self: Reservation, wanted: JobWanted, spread: Shape, now: float) -> tuple[Place, ...] | None:
        nonlocal looks
        looks += 1
        return lets(self, wanted, spread, now)

    monkeypatch.setattr(Reservation, "lets", counted)
    seen = []
    for count in (10, 1000):
        cluster = Cluster(2, 2)
        cluster.wants("runs", 3, 100.0, 0.0)
        cluster.wants("first", 4, 100.0, 0.0)
        cluster.wants("short", 1, 50.0, 0.0)
        for number in range(count):
            assert not cluster.wants(f"{number}", 1, 1000.0, 1.0)
        looks = 0
        assert not cluster.over("short", 50.0)
        seen.append(looks)
    assert seen[0] == seen[1] <= 2


@settings(max_examples=examples(300))
@given(
    nodes=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0.0, 2.0, 8.0])), min_size=1, max_size=5),
    most=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from([0.0, 0.5, 1.0])), max_size=30
    ),
)
def test_nodes_that_differ_take_what_they_have_room_for_the_emptiest_ones_first(
    nodes: list[tuple[int, float]], most: int, steps: list[tuple[int, int, float]]
) -> None:
    shapes = [NodeShape(cores, memory_gb) for cores, memory_gb in nodes]
    largest = NodeShape(max(each.cores for each in shapes))
    table = NodeTable(Part("all", len(shapes), most), largest, shapes)
    loads = [[0] * each.cores for each in shapes]
    left_gb = [each.memory_gb for each in shapes]
    taken: list[tuple[Place, float]] = []
    for kind, count, memory_gb in steps:
        if not kind and taken:
            place, each_gb = taken.pop(0)
            table.give((place,), each_gb)
            left_gb[place.node] += each_gb * len(place.cores)
            for core in place.cores:
                loads[place.node][core] -= 1
        elif count <= largest.cores:
            fit = [
                number for number, row in enumerate(loads)
                if sum(load < most for load in row) >= count and left_gb[number] >= memory_gb * count
            ]  # fmt: skip
            found = table.find(Shape(1, count, count), memory_gb)
            assert (found is None) == (not fit)
            if found is None:
                continue
            (place,) = found
            assert place.node == min(fit, key=lambda number: (sum(loads[number]), number))
            row = loads[place.node]
            assert sorted(row[core] for core in place.cores) == sorted(row)[:count]
            table.take(found, memory_gb)
            taken.append((place, memory_gb))
            left_gb[place.node] -= memory_gb * count
            for core in place.cores:
                row[core] += 1
        assert table.loads == loads
