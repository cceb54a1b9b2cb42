"""Optimus's rule (a baseline): jobs start as small as they can, and grow where that gains most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replkernel_scheduler.elastic.types import Launch
from replkernel_scheduler.policies.reshape_sidecar import SideCar

if TYPE_CHECKING:
    from replkernel_scheduler.elastic.book import Book
    from replkernel_scheduler.elastic.protocol import Dice
    from replkernel_scheduler.elastic.types import TrainingWanted


class GrowOnly(SideCar):
    """Growing as SideCar does it; nobody gives anything to a newcomer."""

    def launch(self, book: Book, wanted: TrainingWanted, dice: Dice, now: float) -> Launch | None:
        """Return a launch with the fewest GPUs it can run with, on the host with the most idle ones."""
        gpus, most = wanted.type.least, max(book.idle)
        if most < gpus:
            book.waiting.in_vain(wanted)
            return None
        return Launch(wanted.job, book.idle.index(most), gpus)
