"""What must hold of a sequence that was played: every cell shows the stock output, and every cell moved."""

from __future__ import annotations

from tests.e2e.state.play import Outcome
from tests.e2e.state.sequence import REPEATS, Sequence


def compare(sequence: Sequence, outcome: Outcome) -> None:
    """Fail with the first cell whose outputs differ."""
    repeated = sequence.cells[-1]
    cells = sequence.runs
    if sequence.refuses:
        cells = cells[: len(sequence.cells) - 1]
    for number, (cell, stock, ours) in enumerate(zip(cells, outcome.stock, outcome.ours, strict=False), 1):
        assert ours.text() == stock.text(), _story(sequence, number, cell, stock.text(), ours.text())
    if not sequence.again:
        return
    last = outcome.ours[-1 - REPEATS :]
    if sequence.refuses:
        for ours in last:
            assert sequence.refuses in ours.text(), _story(
                sequence, len(sequence.cells), repeated, sequence.refuses, ours.text()
            )
        return
    for ours in last[1:]:
        assert ours.without_counts() == last[0].without_counts(), (
            "\nthe last cell, run again on another replica, shows something else"
            + _story(sequence, len(sequence.cells), repeated, last[0].text(), ours.text())
        )


def check_replicas(sequence: Sequence, outcome: Outcome) -> None:
    """Fail unless every cell ran on another replica than the one before it, or may have been pinned."""
    replicas = [played.replica for played in outcome.ours]
    story = f"sequence {sequence.name!r} ran on {replicas}; pins:\n{outcome.pins}"
    if sequence.refuses:
        assert "Nothing binds" not in outcome.pins, story
        return
    if not sequence.pinned:
        assert not outcome.stayed(), story
        assert len(set(replicas[-1 - REPEATS :])) == 1 + REPEATS, story
        return
    if isinstance(sequence.pinned, str):
        assert sequence.pinned in outcome.pins, story


def _story(sequence: Sequence, number: int, cell: str, expected: str, got: str) -> str:
    return (
        f"\nsequence {sequence.name!r}, cell {number} of {len(sequence.cells)}:\n{cell}\n"
        f"--- expected:\n{expected}\n--- got:\n{got}\n--- end"
    )
