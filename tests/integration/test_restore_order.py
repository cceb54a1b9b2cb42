"""Notebooks whose cells wait only for what they reach print what they print in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import move, move_cases, move_library_cases
from tests.support.breadth import each_fifth

ALL = {**move_cases.CASES, **move_library_cases.CASES}


@pytest.fixture(scope="module")
def movers() -> Iterator[move.Movers]:
    processes = move.Movers(2)
    yield processes
    processes.close()


@pytest.mark.parametrize("name", each_fifth(ALL))
def test_leaving_behind_what_no_cell_reaches_changes_no_output(movers: move.Movers, name: str) -> None:
    cells = ALL[name]
    moved = movers.play(cells, ordered=True)
    assert moved.failed == []
    assert moved.outputs == movers.stay(cells)
    assert moved.quiet == []
