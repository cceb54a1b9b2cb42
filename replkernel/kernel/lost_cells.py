"""The cells that a lost process took along: told with the next cell, and in the state until they may be back.

Pure, with time as an argument. Law: a loss is told once; what the state says of it later has its true time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from replkernel.errors import BACK_AT
from replkernel.protocol.agent_to_process import BegunAfresh
from replkernel.protocol.envelope import Afresh

SHOWN_S = 600.0
"""The state tells no longer of a loss."""

MINUTE_S = 60

MAGIC = "%replkernel"
"""A cell that begins so asks about the notebook, and brings nothing back."""


class LostCells(NamedTuple):
    """The cells from `first` to `last`, or where these are none, something that ran after cell `back`."""

    who: str
    back: int
    last: int
    ago_s: float | None
    """How old the point is to which the notebook went back."""

    @property
    def number(self) -> int:
        """Return how many cells they are, one where that is not known."""
        return max(1, self.last - self.back)

    @property
    def _cells(self) -> str:
        first, last = self.back + 1, self.last
        if first == last:
            return f"cell {first}"
        return f"cells {first} and {last}" if last == first + 1 else f"cells {first} to {last}"

    def notice(self) -> str:
        """Say what is lost, how far the notebook is back for that, and what to do."""
        ago = "" if self.ago_s is None else f" ({spelt(self.ago_s)} ago)"
        where = f"{BACK_AT} cell {self.back}{ago}" if self.back else f"{BACK_AT} its beginning"
        if self.last <= self.back:
            return f"{self.who} died before what ran after cell {self.back} was durable: {where}."
        were = "was" if self.number == 1 else "were"
        return f"{self.who} died before {self._cells} {were} durable: {where}; run {self._cells} again."

    def later(self, since_s: float) -> str:
        """Say what was lost so long ago."""
        who = f"{self.who[0].lower()}{self.who[1:]}"
        if self.last <= self.back:
            return f"What ran after cell {self.back} was lost {spelt(since_s)} ago, when {who} died."
        were, them = ("was", "it") if self.number == 1 else ("were", "them")
        cells = self._cells.capitalize()
        return f"{cells} {were} lost {spelt(since_s)} ago, when {who} died: run {them} again."


def lost_cells(begun: BegunAfresh, afresh: Afresh | None) -> LostCells | None:
    """Return which cells a lost replica takes along, None when that is nothing."""
    answered, unlogged = (0, False) if afresh is None else (afresh.answered, afresh.unlogged)
    back, last = begun.execution_count, max(begun.reached, answered)
    if last <= back and not begun.reached and not unlogged:
        return None
    who = f"Replica {begun.executor}" if begun.executor else "The process that ran it"
    return LostCells(who, back, last, begun.ago_s)


class Losses:
    """What the state of one process says of cells that were lost."""

    def __init__(self) -> None:
        self._lost: LostCells | None = None
        self._at = 0.0
        self._to_run = 0
        """So many cells are to be run before the lost ones may be back."""

    def happened(self, lost: LostCells, now: float) -> None:
        """Take note of a loss that the cell which begins is told of."""
        self._lost, self._at, self._to_run = lost, now, lost.number

    def cell_begins(self, texts: Sequence[str]) -> None:
        """Take note of a later cell: once there were as many as are lost, those may well be back."""
        if self._to_run and not (texts and texts[0].lstrip().startswith(MAGIC)):
            self._to_run -= 1

    def said(self, now: float) -> list[str]:
        """Return what is still to be said."""
        lost, since_s = self._lost, now - self._at
        return [lost.later(since_s)] if lost is not None and self._to_run and since_s < SHOWN_S else []


def spelt(seconds: float) -> str:
    """Return a time as people say it: in seconds, or in minutes when there are some."""
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE_S:.0f} min"
