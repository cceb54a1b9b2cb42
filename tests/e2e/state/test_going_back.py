"""Every sequence is undone to its beginning and redone, and then shows what a stock kernel shows.

Then all but its first cell is undone, and the cells run again: they show what they showed at first, but where
they meet what going back leaves as it is.
"""

from __future__ import annotations

import pytest

from tests.e2e.state.going_back import PlayBack
from tests.e2e.state.sequence import Sequence, collect
from tests.support.breadth import each_nth

SETTINGS = {"REPLKERNEL_REPLICAS": "1"}
"""What one process has is undone and redone in it; what standbys make of that is `test_time_travel`'s."""

EVERY = 150
"""One of so many is played each time."""

ALL = [one for one in collect() if not one.refuses]

FILES, PROMPTS = "files stay as they are", "In, Out and their numbers go on"
STAYS = {
    "databases": FILES,
    "files": FILES,
    "ipython": PROMPTS,
    "magics_of_all_days": PROMPTS,
    "shell_state": PROMPTS,
    "memmap through cells": FILES,
    "memory shared with processes that are forked later": FILES,
    "sqlite engine on disk": FILES,
    "an open connection of an engine": FILES,
    "joblib memory and dumps": FILES,
    "autoreload with objects made before": "what autoreload has changed stays imported",
    "autoreload of a package that gives its parts' names": "what autoreload has changed stays imported",
    "a warning is shown once": "what was shown has been shown",
    "a translation put where all modules find it": PROMPTS,
    "streams replaced and given back": "a stream that was given up does not come back",
    "the numbers of nameless threads go on": "numbers that must not come twice go on",
    "nested tensors with rows of different lengths fit each other": "numbers that must not come twice go on",
    "handlers, formatters and filters are the same objects in loggers and variables": FILES,
    "functions of one def have one code": "a function made before and one made after have equal codes",
    "contexts copied before and after a move": "a variable of a context that was replaced stays in it",
    "the dictionary of a library's object, shown and kept": PROMPTS,
}
"""Areas and sequences whose cells need not show the same when they run again after an undo, and why."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sequence", each_nth(ALL, EVERY, 7), ids=[f"{one.area}: {one.name}" for one in ALL])
def test_a_sequence_comes_back_right(play_back: PlayBack, sequence: Sequence) -> None:
    if package := sequence.missing():
        pytest.skip(f"{package} is not installed, and the sequence is about its objects")
    returned = play_back(sequence)
    stock, ours = returned.forth
    assert ours.text() == stock.text(), f"after undo and redo: {sequence.cells[-1]}"
    if returned.refused:
        assert sequence.pinned, returned.refused
    if sequence.area in STAYS or sequence.name in STAYS:
        return
    for cell, before, after in zip(sequence.cells[1:], returned.stock, returned.anew, strict=False):
        assert after.without_counts() == before.without_counts(), f"run again after undo: {cell}"
