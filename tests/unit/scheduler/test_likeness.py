"""Workloads like a trace: what is known of it, worked by hand, and that what is made has it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.likeness import JobsLike, SessionsLike, arrivals_of, likeness
from replkernel_scheduler.sim.records import Cell, Job, Record, Session, order
from replkernel_scheduler.sim.resembling import resembling, traits_of
from replkernel_scheduler.sim.scores import (
    Together,
    alike,
    correlation,
    knots_of,
    normal_scores,
    value_at,
    values_of,
)

from tests.support.examples import examples

HOUR_S = 3600.0


def test_quantiles_are_read_back_between_two_as_the_logarithm_goes() -> None:
    knots = knots_of([1.0, 100.0])
    assert (value_at(knots, 0.0), value_at(knots, 1.0)) == (1.0, 100.0)
    assert value_at(((0.0, 1.0), (1.0, 100.0)), 0.5) == pytest.approx(10.0)
    assert value_at(((0.0, 0.0), (1.0, 100.0)), 0.5) == pytest.approx(50.0), "from 0 on in proportion"
    # The middle score has the middle value: ranks decide, not the scores themselves.
    assert values_of(((0.0, 1.0), (1.0, 100.0)), [5.0, -99.0, 5.1])[0] == pytest.approx(10.0)


def test_scores_and_what_they_share_worked_by_hand() -> None:
    # Ranks 1/4 and 3/4 of the normal distribution; equal samples share the mean of their ranks.
    assert normal_scores([7.0, 3.0]) == pytest.approx([0.6745, -0.6745], abs=1e-4)
    assert normal_scores([3.0, 3.0]) == [0.0, 0.0]
    assert correlation([(0, 0), (1, 2), (2, 4)]) == 1.0 and correlation([(0, 1), (1, 1)]) == 0.0
    # Between groups 2 (1.5 - 2.5)^2 + 2 (3.5 - 2.5)^2 = 4, within 4 x 0.25 / 2 = 0.5, two in each group:
    # (4 - 0.5) / 2 = 1.75 of 1.75 + 0.5.
    assert alike([[1.0, 2.0], [3.0, 4.0]]) == pytest.approx(1.75 / 2.25, abs=1e-4)
    assert alike([[1.0, 3.0], [1.0, 3.0]]) == 0.0 and alike([[1.0, 1.0], [3.0, 3.0]]) == 1.0
    assert alike([[1.0], [2.0]]) == 0.0, "with one sample each, nothing is known"


def test_draws_hang_together_as_they_should_even_where_that_cannot_quite_be() -> None:
    together, dice = Together(((1.0, 0.8), (0.8, 1.0))), Random(1)
    drawn = [together.drawn(dice) for _ in range(4000)]
    assert correlation([(one, other) for one, other in drawn]) == pytest.approx(0.8, abs=0.03)
    opposed = ((1.0, 0.9, -0.9), (0.9, 1.0, 0.9), (-0.9, 0.9, 1.0))
    assert len(Together(opposed).drawn(dice)) == 3


def test_arrivals_are_told_by_part_of_the_time_and_in_gaps_of_their_part() -> None:
    # 8 in the first hour, evenly, and 9 in the second, all at once at its end.
    times = [place * HOUR_S / 8 for place in range(8)] + [2 * HOUR_S - 1] * 9
    like = arrivals_of(times)
    assert like.counts == (8, 8) and like.span_s == 2 * HOUR_S - 1
    assert dict(like.gaps)[0.0] == 0.0, "bursts have gaps of nothing"
    assert dict(like.gaps)[0.75] == pytest.approx(1.0, abs=0.01), "evenly: one mean gap between two"


def _sessions() -> list[Record]:
    """Four people at 0, 1, 2 and 3 h, each with cells of 600 s, and a minute or an hour between them."""
    records: list[Record] = []
    for number, (gpus, think_s) in enumerate([(1, 60.0), (8, 3600.0), (1, 60.0), (8, 3600.0)]):
        begins = number * HOUR_S
        at = begins + 30.0
        cells = []
        for _ in range(4):
            cells.append(Cell(f"secret{number}", at, 600.0, gpus))
            at += 600.0 + think_s
        ends = cells[-1].at + 600.0
        records += [Session(f"secret{number}", begins, ends, gpus, f"ann{number % 2}"), *cells]
    return sorted(records, key=order)


def test_the_likeness_of_sessions_is_as_worked_by_hand() -> None:
    like = likeness(_sessions())
    assert isinstance(like, SessionsLike)
    assert like.gpus.shares == (((1, 0, ()), 0.5), ((8, 0, ()), 0.5)) and like.gpus.alike == 1.0
    assert (like.think.values[0][1], like.think.values[-1][1], like.think.alike) == (60.0, 3600.0, 1.0)
    assert like.cells_mean == 4 and like.before_s[0][1] == like.before_s[-1][1] == 30.0
    assert like.users == (0.5, 0.5) and like.after_s[-1][1] == 0.0
    # The last cell of the last session: 3 h + 30 s + 3 x 4,200 s.
    assert like.last_s == 3 * HOUR_S + 30 + 3 * 4200
    assert like.between[2][3] == 1.0, "who has 8 GPUs thinks long"
    text = msgspec.json.encode(like).decode()
    assert "secret" not in text and "ann" not in text
    assert msgspec.json.decode(text, type=SessionsLike) == like, "the file's first line says all of it"


def test_made_sessions_are_like_it() -> None:
    like = likeness(_sessions())
    for seed in range(5):
        made = resembling(like, seed)
        cells = [record for record in made if isinstance(record, Cell)]
        assert len(cells) == 16
        assert Counter(cell.gpus for cell in cells) == {1: 8, 8: 8}
        assert {round(cell.duration_s) for cell in cells} == {600}
        assert max(cell.at for cell in cells) <= like.last_s + 1e-6
        assert {record.user for record in made if isinstance(record, Session)} <= {"user0", "user1"}
    assert resembling(like, 3) == resembling(like, 3) != resembling(like, 4)


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    times=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_nobodys_cells_overlap_and_nothing_comes_after_the_end(
    seed: int, lengths: list[int], times: float
) -> None:
    dice = Random(seed)
    records: list[Record] = []
    for number, length in enumerate(lengths):
        at = begins = number * 500.0 * dice.random() + number
        cells = []
        for _ in range(length):
            cells.append(Cell(f"{number}", at, dice.paretovariate(0.9), dice.choice([0, 1, 4])))
            at += cells[-1].duration_s + dice.expovariate(0.01)
        records += [Session(f"{number}", begins, at + dice.random() * 99, 4), *cells]
    records.sort(key=order)
    like = likeness(records)
    assert isinstance(like, SessionsLike)
    made = resembling(like, seed, times)
    sessions = {record.session: record for record in made if isinstance(record, Session)}
    assert len(sessions) == max(2, round(len(lengths) * times))
    by_session: dict[str, list[Cell]] = {name: [] for name in sessions}
    for record in made:
        if isinstance(record, Cell):
            by_session[record.session].append(record)
    for name, cells in by_session.items():
        assert cells, "each session is in the file by its cells"
        assert sessions[name].at <= cells[0].at
        assert cells[-1].at + cells[-1].duration_s <= sessions[name].ends + 1e-6
        assert all(one.at + one.duration_s <= other.at + 1e-6 for one, other in pairwise(cells))
        assert all(cell.at <= like.last_s + 1e-6 for cell in cells[1:])


def _jobs() -> list[Record]:
    """By day, 5 at once each 20 minutes; 8 GPUs for 1,000 to 2,000 s or 1 GPU for 10 to 20 s; two users."""
    jobs: list[Record] = []
    dice = Random(0)
    for hour in range(96):
        for burst in range(3 if 8 <= hour % 24 < 20 else 0):
            for _ in range(5):
                wide = dice.random() < 0.25
                duration_s = dice.uniform(1000, 2000) if wide else dice.uniform(10, 20)
                jobs.append(
                    Job(
                        f"secret{len(jobs)}", hour * HOUR_S + burst * 1200.0, duration_s, 8 if wide else 1,
                        user="ann" if burst else "ben", requested_s=3 * duration_s,
                    )
                )  # fmt: skip
    return jobs


def test_made_jobs_come_by_the_hour_and_in_bursts_and_take_what_their_size_takes() -> None:
    like = likeness(_jobs())
    assert isinstance(like, JobsLike)
    assert like.again == pytest.approx(0.87, abs=0.02), "five in a row are one user's"
    made = [record for record in resembling(like, 1) if isinstance(record, Job)]
    assert len(made) == 720
    # It begins at 8 h, and hours are parts of their own but for what one part has of the next hour.
    assert {int((8 + job.at / HOUR_S) % 24) for job in made} <= set(range(7, 21))
    gaps = [later.at - sooner.at for sooner, later in pairwise(made)]
    assert sum(gap < 1 for gap in gaps) / len(gaps) == pytest.approx(0.8, abs=0.03)
    assert all(1000 <= job.duration_s <= 2200 if job.width == 8 else 9 < job.duration_s < 23 for job in made)
    assert all(job.requested_s == pytest.approx(3 * job.duration_s) for job in made)
    same = sum(one.user == other.user for one, other in pairwise(made)) / len(gaps)
    assert same == pytest.approx(like.again, abs=0.05)
    assert traits_of(made).gpu_hours == pytest.approx(traits_of(_jobs()).gpu_hours, rel=0.02)
    twice = [record for record in resembling(like, 1, 2.0) if isinstance(record, Job)]
    assert len(twice) == 1440 and max(job.at for job in twice) == pytest.approx(like.arrivals.span_s)


def test_parts_of_gpus_and_models_are_kept() -> None:
    jobs: list[Record] = [
        Job(f"{n}", n * 60.0, 100.0, 1, milli=250 if n % 2 else 0, gpu_models=("T4", "V100")[: n % 3])
        for n in range(120)
    ]
    made = [record for record in resembling(likeness(jobs), 0) if isinstance(record, Job)]
    wanted = Counter((job.milli, job.gpu_models) for job in jobs if isinstance(job, Job))
    assert Counter((job.milli, job.gpu_models) for job in made) == wanted


def test_traits_are_those_of_the_records() -> None:
    # On from 0 to 100 and, as it waits for that, to 150; another one from 50 to 100. Nothing comes after 60.
    records: list[Record] = [
        Session("a", 0.0, 200.0, 2), Cell("a", 0.0, 100.0, 2), Session("b", 50.0, 100.0, 4),
        Cell("b", 50.0, 50.0, 4), Cell("a", 60.0, 50.0, 2),
    ]  # fmt: skip
    traits = traits_of(records)
    assert (traits.sessions, traits.cells, traits.jobs, traits.running_max) == (2, 3, 0, 2)
    assert traits.gpu_hours == pytest.approx((200 + 200 + 100) / 3600)
    assert traits.think_s is not None and traits.think_s.max == 0.0
    assert traits.arrive_after_s is not None and traits.arrive_after_s.p50 == 50.0


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([], "too little to be like"),
        ([Job("a", 0.0, 1.0, 1), Job("b", 0.0, 1.0, 1)], "at different times"),
        ([Cell("a", 0.0, 1.0, 1), Job("b", 5.0, 1.0, 1)], "both cells and jobs"),
    ],
)
def test_a_trace_that_nothing_can_resemble_is_refused_with_the_reason(
    records: list[Record], told: str
) -> None:
    with pytest.raises(SimulationError, match=told):
        likeness(records)
