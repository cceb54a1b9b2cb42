"""Plays a sequence on one process, takes it back to its beginning and forth again, and goes on from there.

Law: what only takes it there leaves no prompt, so that the cells after that show what stock shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from tests.e2e.state.cell_outputs import Played
from tests.e2e.state.play import Kernel, Pair
from tests.e2e.state.sequence import Sequence
from tests.support.live import await_commit

GONE = "The notebook is back at cell"
REFUSED = "Nothing was undone: "


class Forth(msgspec.Struct):
    """What a sequence showed on both kernels after all was undone and redone: its last cell, stock's first.

    `stock` is what the cells before it showed there. `refused` is what the notebook said where it did not go,
    `took_s` what each way took.
    """

    last: tuple[Played, Played]
    stock: list[Played]
    refused: str
    took_s: list[float]


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
    forth = go_forth(pair)
    if forth.refused:
        return Returned(forth.last, [], [], forth.refused)
    said = _go(pair.ours, 1)
    anew = [] if said else [pair.ours.play(cell).end() for cell in pair.sequence.cells[1:]]
    return Returned(forth.last, [*forth.stock[1:], forth.last[0]], anew, said)


def go_forth(pair: Pair) -> Forth:
    """Play all but the last cell, undo all, redo all, play the last one."""
    ours, stock = pair.ours, pair.stock
    cells = pair.sequence.cells
    beside = stock.play("pass", counted=False)
    ours.play("pass", counted=False).end()  # The history begins with it.
    beside.end()
    shown = []
    for cell in cells[:-1]:
        beside, playing = stock.play(cell), ours.play(cell)
        playing.end()
        shown.append(beside.end())
        if len(shown) == 1:
            await_commit(ours.client)  # Else it may be one step with the next cell.
    said, took_s = "", []
    for to in (0, len(cells) - 1):
        began = time.perf_counter()
        said = said or _go(ours, to)
        took_s.append(time.perf_counter() - began)
    beside, playing = stock.play(cells[-1]), ours.play(cells[-1])
    ours_shown = playing.end()
    return Forth((beside.end(), ours_shown), shown, said, took_s)


def _go(kernel: Kernel, cell: int) -> str:
    """Take our kernel to where it was after a cell; return why it did not go, or nothing."""
    said = kernel.play(f"%replkernel goto {cell}", counted=False).end().text()
    assert GONE in said or REFUSED in said, said
    return said if REFUSED in said else ""
