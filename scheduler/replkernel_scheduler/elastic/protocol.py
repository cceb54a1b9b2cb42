"""What the core of reshaped jobs asks its policy.

Law: it suggests from the book, and reads no clock; dice are handed in. It changes nothing there but `drawn`,
and what was tried in vain.
"""

from __future__ import annotations

from typing import Protocol

from replkernel_scheduler.elastic.book import Book
from replkernel_scheduler.elastic.types import Launch, Reshape, TrainingWanted


class Dice(Protocol):
    """What a policy may draw from."""

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        ...


class Reshaping(Protocol):
    """Who gets how many GPUs, from whom, and who grows into idle ones."""

    def launch(self, book: Book, wanted: TrainingWanted, dice: Dice, now: float) -> Launch | None:
        """Return how a job that waits is to be launched now; None: it waits on."""
        ...

    def grow(self, book: Book, now: float) -> Reshape | None:
        """Return who grows, asked while GPUs are idle and nobody waits; None: nobody (any more)."""
        ...
