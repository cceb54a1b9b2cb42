"""Sequences of cells, run on three replicas with a move between every two cells, show the stock outputs."""

from __future__ import annotations

import importlib.util

import pytest

from tests.e2e.state.comparison import check_replicas, compare
from tests.e2e.state.play import Players
from tests.e2e.state.sequence import Sequence, collect

ALL = collect()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sequence", ALL, ids=[f"{one.area}: {one.name}" for one in ALL])
def test_a_sequence_shows_what_a_stock_kernel_shows(players: Players, sequence: Sequence) -> None:
    for package in sequence.needs:
        if importlib.util.find_spec(package.partition(".")[0]) is None:
            pytest.skip(f"{package} is not installed, and the sequence is about its objects")
    outcome = players.play(sequence)
    compare(sequence, outcome)
    check_replicas(sequence, outcome)
