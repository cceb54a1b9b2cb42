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
        if max(book.idle) < wanted.type.least and not book.giving:
            return None
        choices = self._launches(book, wanted, now)
        best = min(choices, key=lambda choice: (choice[0], choice[1].host, choice[1].gpus), default=None)
        return None if best is None else best[1]

    def grow(self, book: Book, now: float) -> Reshape | None:
        """Return the growth with the best score, if it gains enough."""
        outlook = book.outlook(now)
        best: tuple[Score, Reshape] | None = None
        for host, idle in enumerate(book.idle):
            for job, training in book.donors(host, now) if idle else ():
                for more in range(1, idle + 1):
                    gpus = training.gpus + more
                    if gpus not in training.type.iteration_s:
                        continue
                    end = book.reshaped_end(training, gpus, now)
                    score = outlook.score(None, job, end, more, book.costs.up_s)
                    if best is None or score < best[0]:
                        best = score, Reshape(job, gpus)
        if best is None or not self._gains(outlook.score(), best[0], now):
            return None
        return best[1]

    def _gains(self, before: Score, after: Score, now: float) -> bool:
        """Say whether the makespan, or else the sum of all ends, becomes better by enough."""
        least = self.gain * (before.makespan - now)
        if before.makespan - after.makespan > least:
            return True
        return after.makespan <= before.makespan and before.completions - after.completions > least

    @staticmethod
    def _launches(book: Book, wanted: TrainingWanted, now: float) -> Iterator[tuple[Score, Launch]]:
        outlook, job, costs = book.outlook(now), wanted.job, book.costs
        for host, idle in enumerate(book.idle):
            if idle < wanted.type.least and host not in book.giving:
                continue
            donors, kind = book.donors(host, now), book.type_on(wanted, host)
            for gpus in sorted(kind.iteration_s):
                if gpus <= idle:
                    new = book.new_end(wanted, gpus, False, now, host)
                    yield outlook.score(new, gpus=gpus), Launch(job, host, gpus)
                    continue
                for donor, training in donors:
                    left = training.gpus - (gpus - idle)
                    if left in training.type.iteration_s:
                        new = book.new_end(wanted, gpus, True, now, host)
                        end = book.reshaped_end(training, left, now)
                        score = outlook.score(new, donor, end, gpus, costs.down_s)
                        yield score, Launch(job, host, gpus, donor)
