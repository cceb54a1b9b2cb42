"""Notebooks whose cells wait only for what they reach print what they print in one process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import move
import move_cases
import move_library_cases
from breadth import each_fifth

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
