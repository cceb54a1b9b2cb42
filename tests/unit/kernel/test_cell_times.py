"""A cell that was quick each time is known to be; one that was not, or is new, may take for ever."""

from __future__ import annotations

import pytest

from replkernel.kernel.cell_times import ALIKE_MIN, CELLS_MAX, QUICK_CELL_S, TEXT_MAX, CellTimes

LONG_S = QUICK_CELL_S + 1


@pytest.fixture
def times() -> CellTimes:
    return CellTimes()


def test_a_new_cell_is_not_known_to_be_quick(times: CellTimes) -> None:
    assert not times.is_quick("train()")


def test_the_same_text_that_was_quick_is_quick_again(times: CellTimes) -> None:
    times.took("sum(rows)", 0.1)
    assert times.is_quick("sum(rows)")


def test_a_text_that_once_was_not_quick_is_never_quick(times: CellTimes) -> None:
    times.took("step()", LONG_S)
    times.took("step()", 0.1)
    assert not times.is_quick("step()")


def test_several_cells_with_other_numbers_say_how_long_the_next_takes(times: CellTimes) -> None:
    for number in range(ALIKE_MIN):
        assert not times.is_quick(f"rows[{ALIKE_MIN}] = 5")
        times.took(f"rows[{number}] = 5", 0.1)
    assert times.is_quick("rows[99] = 5")
    assert not times.is_quick("rows[99] = x")


def test_one_long_cell_among_those_alike_makes_the_next_unknown(times: CellTimes) -> None:
    for number in range(ALIKE_MIN):
        times.took(f"train({number})", 0.1)
    times.took("train(1000)", LONG_S)
    assert not times.is_quick("train(2000)")
    assert times.is_quick("train(0)"), "that very cell was quick"


def test_remembered_cell_times_are_bounded(times: CellTimes) -> None:
    times.took("x" * (TEXT_MAX + 1), 0.1)
    assert not times.is_quick("x" * (TEXT_MAX + 1))
    times.took("first", 0.1)
    for number in range(CELLS_MAX):
        times.took(f"a{'b' * number}", 0.1)
    assert not times.is_quick("first")
