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
        choices = self._launches(book, wanted, now)
        best = min(choices, key=lambda choice: (choice[0], choice[1].host, choice[1].gpus), default=None)
        if best is None:
            book.waiting.in_vain(wanted)
            return None
        return best[1]

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
        """Yield the launches that may be the best: of hosts with idle GPUs that are alike, the first."""
        job, down_s, least = wanted.job, book.costs.down_s, wanted.type.least
        sizes: dict[int, list[int]] = {}
        known: set[tuple[int, int]] = set()
        for host in book.worth_a_look(wanted):
            idle, gives = book.idle[host], host in book.giving
            if idle < least and not gives:
                continue
            donors, kind = book.donors(host, now) if gives else (), book.type_on(wanted, host)
            for gpus in sizes.get(id(kind)) or sizes.setdefault(id(kind), sorted(kind.iteration_s)):
                if gpus <= idle:
                    if (id(kind), gpus) not in known:
                        known.add((id(kind), gpus))
                        new = book.new_end(wanted, gpus, False, now, host)
                        yield book.outlook(now).score(new, gpus=gpus), Launch(job, host, gpus)
                    continue
                for donor, training in donors:
                    left = training.gpus - (gpus - idle)
                    if left in training.type.iteration_s:
                        new = book.new_end(wanted, gpus, True, now, host)
                        end = book.reshaped_end(training, left, now)
                        score = book.outlook(now).score(new, donor, end, gpus, down_s)
                        yield score, Launch(job, host, gpus, donor)
