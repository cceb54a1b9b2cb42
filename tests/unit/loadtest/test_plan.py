"""What a load test plays: the sessions of a pattern, in its own time, never more than were asked for."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_server.loadtest.errors import LoadTestError
from replkernel_server.loadtest.plan import LoadPlan, Wanted, built_in, from_records

from tests.support.examples import examples

HOUR_S = 3600.0


def wanted(**said: object) -> Wanted:
    return msgspec.structs.replace(Wanted(sessions=2, lasts_s=60.0, speed=10.0, begins_h=0.0), **said)


def open_at_once(plan: LoadPlan) -> int:
    changes = [(one.opens_s, 1) for one in plan.sessions] + [(one.closes_s, -1) for one in plan.sessions]
    most = count = 0
    for _, change in sorted(changes):
        count += change
        most = max(most, count)
    return most


def test_times_are_divided_by_the_speed_and_long_cells_are_cut() -> None:
    records: list[Record] = [
        Session("a", 100.0, 400.0, 4),
        Cell("a", 200.0, 50.0, 4),
        Cell("a", 110.0, 5.0, 1),
        Cell("a", 700.0, 5.0, 1),
    ]
    plan = from_records(records, wanted(cell_max_s=2.0, gpus_max=2))
    (session,) = plan.sessions
    assert (session.name, session.opens_s, session.closes_s) == ("a", 10.0, 40.0)
    assert [(cell.at_s, cell.runs_s, cell.gpus) for cell in session.cells] == [(11.0, 0.5, 1), (20.0, 2.0, 2)]


def test_cells_ask_for_no_gpus_unless_told() -> None:
    plan = from_records([Session("a", 0.0, 50.0, 4), Cell("a", 1.0, 1.0, 4)], wanted())
    assert plan.sessions[0].cells[0].gpus == 0


def test_a_load_test_begins_where_a_trace_first_has_as_many_sessions_as_wanted() -> None:
    records: list[Record] = [
        Session("early", 0.0, 9000.0, 1),
        Cell("early", 10.0, 1.0, 1),
        Cell("early", 5100.0, 1.0, 1),
        Session("late", 5000.0, 9000.0, 1),
        Cell("late", 5200.0, 1.0, 1),
    ]
    plan = from_records(records, wanted(begins_h=None))
    assert [(one.name, one.opens_s) for one in plan.sessions] == [("early", 0.0), ("late", 0.0)]
    assert [cell.at_s for one in plan.sessions for cell in one.cells] == [10.0, 20.0]


def test_a_session_too_many_is_left_out_and_one_that_comes_when_another_has_gone_is_not() -> None:
    records: list[Record] = []
    for name, begins, ends in (("a", 0.0, 100.0), ("b", 0.0, 600.0), ("c", 50.0, 600.0), ("d", 100.0, 600.0)):
        records += [Session(name, begins, ends, 1), Cell(name, begins + 5, 1.0, 1)]
    plan = from_records(records, wanted())
    assert [one.name for one in plan.sessions] == ["a", "b", "d"]


def test_a_part_without_cells_and_a_trace_of_jobs_are_refused_with_what_to_do() -> None:
    records: list[Record] = [Session("a", 0.0, 50.0, 1), Cell("a", 1.0, 1.0, 1)]
    with pytest.raises(LoadTestError, match="--from"):
        from_records(records, wanted(begins_h=3.0))
    with pytest.raises(LoadTestError, match="jobs"):
        from_records([Job("j", 0.0, 1.0, 1)], wanted())


@example(sessions=3, seed=557, speed=1.0)  # Nobody submits a cell in the later half of the pattern.
@example(sessions=3, seed=672, speed=58.257038340524716)  # The first cell's second, told in hours, is later.
@example(sessions=12, seed=903, speed=7.0)  # As the first cell comes, a session is over and the next to come.
@given(sessions=st.integers(3, 12), seed=st.integers(0, 1000), speed=st.floats(1, 120))
@settings(max_examples=examples(8), deadline=None)
def test_the_built_in_pattern_has_as_many_sessions_as_are_wanted_and_begins_with_a_cell(
    sessions: int, seed: int, speed: float
) -> None:
    asked = Wanted(sessions=sessions, lasts_s=60.0, speed=speed, seed=seed)
    plan = built_in(asked)
    assert plan == built_in(asked)
    assert open_at_once(plan) <= sessions
    assert sum(one.opens_s == 0 for one in plan.sessions) == sessions
    due = sorted(cell.at_s for session in plan.sessions for cell in session.cells)
    assert due[0] == pytest.approx(0.0, abs=1e-6) and due[-1] < asked.lasts_s
    assert all(cell.runs_s <= asked.cell_max_s for session in plan.sessions for cell in session.cells)
