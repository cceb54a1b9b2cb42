"""SideCar: a newcomer gets GPUs from one running job if that ends all sooner; idle GPUs make jobs grow.

Law: algorithms 1 and 2 of the specification, 2.4 and 2.5, with its corrections: donors give 1 to as many GPUs
as leave them a size that they can run with, predictions are of all jobs, and growing must gain something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from replkernel_scheduler.elastic.types import Launch, Reshape

if TYPE_CHECKING:
    from replkernel_scheduler.elastic.book import Book, Score
    from replkernel_scheduler.elastic.protocol import Dice
    from replkernel_scheduler.elastic.types import TrainingWanted

GAIN = 0.02


class SideCar:
    """`gain`: the share of the time that is left which growing must save; below 0: grow even at a loss."""

    def __init__(self, gain: float = GAIN) -> None:
        """Keep the least gain; as the paper's algorithm 2 is printed, it is minus infinity."""
        self.gain = gain

    def launch(self, book: Book, wanted: TrainingWanted, dice: Dice, now: float) -> Launch | None:
        """Return the launch with the best score, from idle GPUs or one donor's."""
        ends = book.ends(now)
        choices = list(self._launches(book, wanted, ends, now))
        return (
            min(choices, key=lambda choice: (choice[0], choice[1].host, choice[1].gpus))[1]
            if choices
            else None
        )

    def grow(self, book: Book, now: float) -> Reshape | None:
        """Return the growth with the best score, if it gains enough."""
        ends = book.ends(now)
        best: tuple[Score, Reshape] | None = None
        for host, idle in enumerate(book.idle):
            for job, training in book.donors(host, now):
                for more in range(1, idle + 1):
                    gpus = training.gpus + more
                    if gpus not in training.wanted.type.iteration_s:
                        continue
                    after = {**ends, job: book.reshaped_end(training, gpus, now)}
                    choice = (book.score(after, more, book.costs.up_s), Reshape(job, gpus))
                    if best is None or choice[0] < best[0]:
                        best = choice
        if best is None or not self._gains(book.score(ends), best[0], now):
            return None
        return best[1]

    def _gains(self, before: Score, after: Score, now: float) -> bool:
        """Say whether the makespan, or else the sum of all ends, becomes better by enough."""
        least = self.gain * (before.makespan - now)
        if before.makespan - after.makespan > least:
            return True
        return after.makespan <= before.makespan and before.completions - after.completions > least

    @staticmethod
    def _launches(
        book: Book, wanted: TrainingWanted, ends: dict[str, float], now: float
    ) -> Iterator[tuple[Score, Launch]]:
        job = wanted.job
        for host, idle in enumerate(book.idle):
            for gpus in sorted(wanted.type.iteration_s):
                if gpus <= idle:
                    after = {**ends, job: book.new_end(wanted, gpus, False, now)}
                    yield book.score(after, gpus), Launch(job, host, gpus)
                    continue
                for donor, training in book.donors(host, now):
                    left = training.gpus - (gpus - idle)
                    if left in training.wanted.type.iteration_s:
                        after = {
                            **ends,
                            donor: book.reshaped_end(training, left, now),
                            job: book.new_end(wanted, gpus, True, now),
                        }
                        yield book.score(after, gpus, book.costs.down_s), Launch(job, host, gpus, donor)
