"""What a lost executor leaves: what of it the log may yet take, and that the next execution begins afresh.

Pure. Law: nothing is waited for that no keeper has, and for the rest no longer than TAIL_LIMIT_S; until
another process has run a cell, each execution is told that the one before it is lost.
"""

from __future__ import annotations

from replkernel.protocol.envelope import Afresh
from replkernel.records import Mark, Seq

TAIL_LIMIT_S = 5.0
"""How long the last execution of a lost process may take to be committed by its keeper."""


class Loss:
    """The loss of one executor; `last` is the last execution that it ran, None while nobody is lost."""

    def __init__(self) -> None:
        self.last: Seq | None = None
        self.deadline: float | None = None
        """Until when the log may yet take something, None when nothing is waited for."""
        self._coming = self._whole = Seq(0)
        """Up to which execution the keeper may have anything, and may make the state whole."""

    def happened(
        self, completed: Seq, logged: Seq, committed: Seq, kept: int, newest: int | None, now: float
    ) -> None:
        """Take note of it: its keeper has something up to `newest`, and what is whole up to `kept`."""
        self.last, self._whole = completed, Seq(kept)
        self._coming = completed if newest is None else Seq(min(newest, completed))
        self.deadline = now + TAIL_LIMIT_S if self._lacks(logged, committed) else None

    def awaits(self, logged: Seq, committed: Seq, now: float) -> bool:
        """Tell whether the log may yet take something of it."""
        return self.deadline is not None and now < self.deadline and self._lacks(logged, committed)

    def _lacks(self, logged: Seq, committed: Seq) -> bool:
        return logged < self._coming or committed < self._whole

    def settled(self) -> None:
        """Wait no more: what has not come by now will not."""
        self.deadline = None

    def over(self) -> None:
        """Take note that another process has run a cell, or that another group goes on."""
        self.last = self.deadline = None

    def afresh(self, answered: int, logged: Mark) -> Afresh | None:
        """Return what the next execution is told of it; `answered` is the last cell that was answered."""
        return None if self.last is None else Afresh(answered, self.last > logged.seq)
