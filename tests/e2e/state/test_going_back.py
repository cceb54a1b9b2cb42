"""Every sequence is undone to its beginning and redone, and then shows what a stock kernel shows."""

from __future__ import annotations

import pytest

from tests.e2e.state.going_back import PlayBack, Returned
from tests.e2e.state.sequence import Sequence, collect
from tests.support.breadth import each_nth

SETTINGS = {"REPLKERNEL_REPLICAS": "1"}
"""What one process has is undone and redone in it; what standbys make of that is `test_time_travel`'s."""

ALL = [one for one in collect() if not one.refuses]
EVERY = 60


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sequence", each_nth(ALL, EVERY), ids=[f"{one.area}: {one.name}" for one in ALL])
def test_a_sequence_comes_back_right(play_back: PlayBack, sequence: Sequence) -> None:
    if package := sequence.missing():
        pytest.skip(f"{package} is not installed, and the sequence is about its objects")
    returned = play_back(sequence)
    _check(sequence, returned)


def _check(sequence: Sequence, returned: Returned) -> None:
    stock, ours = returned.forth
    if returned.refused:
        print("REFUSED", returned.refused)
    assert ours.text() == stock.text(), f"after undo and redo: {sequence.cells[-1]}"
    for cell, before, after in zip(sequence.cells[1:], returned.stock, returned.anew, strict=False):
        assert after.without_counts() == before.without_counts(), f"after undo: {cell}"
