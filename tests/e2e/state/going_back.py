"""Plays a sequence on one process, takes it back to its beginning and forth again, and goes on from there.

Law: cells that only mark or travel leave no prompt, so that the cells after them show what stock shows.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.e2e.state.cell_outputs import Played
from tests.e2e.state.play import Kernel, Pair
from tests.e2e.state.sequence import Sequence

GONE = "The notebook is as after cell"
REFUSED = "Nothing was taken back: "


class Returned(msgspec.Struct):
    """What both kernels showed. `forth`: the last cell, after all was undone and redone. `anew`: the cells
    from the second on, run again on ours after all behind the first was undone.

    `refused` is what the notebook said where it did not go.
    """

    forth: tuple[Played, Played]
    stock: list[Played]
    anew: list[Played]
    refused: str = ""


PlayBack = Callable[[Sequence], Returned]


def there_and_back(pair: Pair) -> Returned:
    """Play all but the last cell, undo all, redo all, play the last one; then undo all but the first cell."""
    ours, stock = pair.ours, pair.stock
    first, *others = pair.sequence.cells
    shown: list[Played] = []

    def both(cell: str) -> None:
        playing = stock.play(cell), ours.play(cell)
        shown.append(playing[0].end())
        latest[:] = [playing[1].end()]

    latest: list[Played] = []
    _mark(pair, "begun")
    both(first)
    _mark(pair, "first")
    for cell in others[:-1]:
        both(cell)
    _mark(pair, "there")
    said = _go(ours, "begun") or _go(ours, "there")
    both(others[-1])
    forth = shown[-1], latest[0]
    if said or not pair.sequence.again:
        return Returned(forth, [], [], said)
    said = _go(ours, "first")
    anew = [] if said else [ours.play(cell).end() for cell in others]
    return Returned(forth, shown[1:], anew, said)


def _mark(pair: Pair, name: str) -> None:
    """Have our kernel mark a point, and the other one run a cell as well: some sequences count them."""
    beside = pair.stock.play("pass", counted=False)
    said = pair.ours.play(f"%replkernel mark {name}", counted=False).end()
    beside.end()
    assert not [part for part in said.shown if part[0] in ("error", "stderr")], said.text()


def _go(kernel: Kernel, name: str) -> str:
    """Take our kernel to a point; return why it did not go, or nothing."""
    said = kernel.play(f"%replkernel goto {name}", counted=False).end().text()
    assert GONE in said or REFUSED in said, said
    return said if REFUSED in said else ""
