"""From which execution count a replica has to go on when one that knew better is lost.

Pure. Law: a count that a client has seen of a stored cell is given to no other cell, unless user code has set
the count back.
"""

from __future__ import annotations

from replkernel.router.core.contents import ExecuteOptions


class Counts:
    """The count that the last stored cell was given, and what a loss makes of it."""

    def __init__(self) -> None:
        self._given = 0
        self.answered_last = 0
        """The last stored cell that its process answered, as far as is known."""
        self.at_least = 0
        """So many cells are counted, whatever the next executor knows; 0 where it knows by itself."""

    def answered(self, options: ExecuteOptions, count: int | None) -> None:
        """Take note of a reply: who gave it knows the count."""
        if count and options.store_history and not options.silent:
            self._given, self.at_least = count, 0
            self.answered_last = count

    def resumed(self, count: int) -> None:
        """Take note of a count that the router before this one saw; whoever has it may be lost."""
        self._given = self.at_least = max(self._given, count)

    def answered_before(self, count: int) -> None:
        """Take note of a reply to the router before this one."""
        self.answered_last = max(self.answered_last, count)

    def ended(self, options: ExecuteOptions, count: int) -> None:
        """Take note of a cell that the router had to answer."""
        if options.store_history and not options.silent:
            self._given = self.at_least = max(self._given, count)

    def lost(self) -> None:
        """Take note that the executor is gone, perhaps with cells that it had answered."""
        self.at_least = self._given
