"""The default scheduler (a baseline): sizes are drawn and kept to the end; small jobs pass blocked ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replkernel_scheduler.elastic.types import Launch, Reshape

if TYPE_CHECKING:
    from replkernel_scheduler.elastic.book import Book
    from replkernel_scheduler.elastic.protocol import Dice
    from replkernel_scheduler.elastic.types import TrainingWanted


class NeverReshape:
    """First come, first served, with skipping; nobody is reshaped."""

    def launch(self, book: Book, wanted: TrainingWanted, dice: Dice, now: float) -> Launch | None:
        """Return a launch with as many GPUs as were drawn for the job, once a host has them idle."""
        sizes = [gpus for gpus in sorted(wanted.type.iteration_s) if gpus <= max(book.hosts)]
        drawn = book.drawn.setdefault(wanted.job, int(dice.random() * len(sizes)))
        most = max(book.idle)
        return None if most < sizes[drawn] else Launch(wanted.job, book.idle.index(most), sizes[drawn])

    def grow(self, book: Book, now: float) -> Reshape | None:
        """Return nobody."""
        return None
