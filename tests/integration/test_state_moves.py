"""Notebooks whose cells run in different processes by turns print what they print in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import move, move_cases, move_library_cases
from tests.support.breadth import each_fifth

LOST_BY_FAILOVER = {"live graph"}
"""Notebooks with an object that only the replica that made it can use."""

ALL = {**move_cases.CASES, **move_library_cases.CASES}


@pytest.fixture(scope="module")
def movers() -> Iterator[move.Movers]:
    processes = move.Movers(2)
    yield processes
    processes.close()


@pytest.mark.parametrize("name", list(move_cases.CASES))
def test_moving_every_cell_changes_no_output(movers: move.Movers, name: str) -> None:
    cells = move_cases.CASES[name]
    moved = movers.play(cells)
    assert moved.failed == []
    assert moved.outputs == movers.stay(cells)
    assert moved.quiet == []


@pytest.mark.parametrize("name", list(move_library_cases.CASES))
def test_moving_libraries_objects_changes_no_output(movers: move.Movers, name: str) -> None:
    cells = move_library_cases.CASES[name]
    moved = movers.play(cells)
    assert moved.failed == []
    assert moved.outputs == movers.stay(cells)
    assert moved.quiet == []


@pytest.mark.parametrize("name", each_fifth(name for name in ALL if name not in LOST_BY_FAILOVER))
def test_a_failover_before_the_last_cell_changes_no_output(movers: move.Movers, name: str) -> None:
    cells = ALL[name]
    moved = movers.play(cells, order=[0] * (len(cells) - 1) + [1], probe=False)
    assert moved.failed == []
    assert moved.outputs == movers.stay(cells)
