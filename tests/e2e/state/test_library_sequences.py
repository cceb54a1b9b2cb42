"""Sequences whose cells use packages: in a module of their own, so that the others need not import them."""

from __future__ import annotations

import pytest

from tests.e2e.state.comparison import check_replicas, compare
from tests.e2e.state.play import Play
from tests.e2e.state.sequence import Sequence, collect
from tests.support.breadth import SHORT_EVERY, each_nth, some_of_each
from tests.support.move_library_cases import CASES

NEEDS = ("numpy", "pandas", "torch", "matplotlib", "sklearn")
ALL = [one for one in collect() if one.needs]
PLAYED = some_of_each(ALL, lambda one: str(one.area), 25, lambda one: bool(one.always))
SHORT = [Sequence(name=name, cells=tuple(cells), again=False, needs=NEEDS) for name, cells in CASES.items()]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sequence", PLAYED, ids=[f"{one.area}: {one.name}" for one in ALL])
def test_a_sequence_shows_what_a_stock_kernel_shows(play: Play, sequence: Sequence) -> None:
    if package := sequence.missing():
        pytest.skip(f"{package} is not installed, and the sequence is about its objects")
    outcome = play(sequence)
    compare(sequence, outcome)
    check_replicas(sequence, outcome)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sequence", each_nth(SHORT, SHORT_EVERY), ids=lambda sequence: sequence.name)
def test_a_notebook_that_moves_between_bare_processes_shows_the_same_here(
    play: Play, sequence: Sequence
) -> None:
    compare(sequence, play(sequence))
