"""The short notebooks that other tests move between bare processes show the stock outputs on real kernels."""

from __future__ import annotations

import pytest

from tests.e2e.state.comparison import compare
from tests.e2e.state.play import Players
from tests.e2e.state.sequence import Sequence
from tests.support.move_cases import CASES
from tests.support.move_library_cases import CASES as LIBRARY_CASES

NEEDS = ("numpy", "pandas", "torch", "matplotlib", "sklearn")
PLAIN = [Sequence(name=name, cells=tuple(cells), again=False) for name, cells in CASES.items()]
LIBRARIES = [
    Sequence(name=name, cells=tuple(cells), again=False, needs=NEEDS) for name, cells in LIBRARY_CASES.items()
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sequence", [*PLAIN, *LIBRARIES], ids=lambda sequence: sequence.name)
def test_a_short_notebook_shows_what_a_stock_kernel_shows(players: Players, sequence: Sequence) -> None:
    compare(sequence, players.play(sequence))
