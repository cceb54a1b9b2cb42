"""How long to defer, learned from what earlier deferrals would have needed (spec 3.4).

The loss of a deferral is |X - F|. Law: X is from 0 to 100 s; a predictor knows only deferrals that were
judged. Random and grid search have TRIALS of them, the fewest with which the Bayesian one may exploit, and
then keep their best.
"""

from __future__ import annotations

from typing import Protocol

from replkernel_scheduler.pool.arrivals import DEFERRAL_MAX_S
from replkernel_scheduler.pool.gaussian import GaussianProcess
from replkernel_scheduler.pool.protocol import Dice
from replkernel_scheduler.pool.types import Context, Deferral

STRATA = 10
TRIALS = 100
WINDOW = 200
ENOUGH = 0.1
"""Acquisition ends when the expected improvement is less than this share of the loss that is expected."""
LEARN_EVERY = 10
"""Of the deferrals judged while exploiting, one in so many is learned, so that drift is followed."""


class Predictor(Protocol):
    """Who says how long to defer. `trials` is how many deferrals it learned from."""

    trials: int

    def predict(self, context: Context, dice: Dice) -> float:
        """Return a deferral in seconds."""
        ...

    def learn(self, deferral: Deferral) -> None:
        """Take note of one that was judged."""
        ...


class Uniform:
    """Random search: the best of TRIALS deferrals that were drawn."""

    def __init__(self) -> None:
        """Start without a best one."""
        self.trials = 0
        self._best = (float("inf"), 0.0)

    def predict(self, context: Context, dice: Dice) -> float:
        """Return a new one, or the best so far once there were enough."""
        return self._try(dice) if self.trials < TRIALS else self._best[1]

    def learn(self, deferral: Deferral) -> None:
        """Keep it if its loss is the least."""
        if self.trials < TRIALS:
            self.trials += 1
            self._best = min(self._best, (self._loss(deferral), deferral.chosen_s))

    def _try(self, dice: Dice) -> float:
        return DEFERRAL_MAX_S * dice.random()

    def _loss(self, deferral: Deferral) -> float:
        return abs(deferral.chosen_s - deferral.needed_s)


class Grid(Uniform):
    """Grid search: each of 11 deferrals in turn, and the one whose mean loss is the least."""

    def __init__(self) -> None:
        """Start with nothing tried."""
        super().__init__()
        self._asked = 0
        self._losses: dict[float, list[float]] = {}

    def _try(self, dice: Dice) -> float:
        self._asked += 1
        return self._asked % (STRATA + 1) * DEFERRAL_MAX_S / STRATA

    def _loss(self, deferral: Deferral) -> float:
        losses = self._losses.setdefault(deferral.chosen_s, [])
        losses.append(super()._loss(deferral))
        if self.trials == TRIALS:
            means = {chosen_s: sum(of) / len(of) for chosen_s, of in self._losses.items()}
            self._best = (-1.0, min(means, key=means.__getitem__))
        return sum(losses) / len(losses)


class Bayes:
    """A Gaussian process over X and context: strata, then expected improvement, then its mean's minimum."""

    def __init__(self) -> None:
        """Start with the strata before it."""
        self.trials = self._judged = 0
        self.exploits = False
        self._strata: list[int] = []
        self._process = GaussianProcess(WINDOW)

    def predict(self, context: Context, dice: Dice) -> float:
        """Return a deferral: one that teaches while it learns, the best expected one after that."""
        if self.trials < STRATA:
            if not self._strata:
                self._strata = sorted(range(STRATA), key=lambda _: dice.random())
            return (self._strata.pop() + dice.random()) * DEFERRAL_MAX_S / STRATA
        given = _numbers(context)
        if self.exploits:
            return self._process.lowest(given)
        chosen_s, improvement, expected = self._process.most_improving(given)
        if self.trials >= TRIALS and improvement < ENOUGH * abs(expected):
            self.exploits = True
            return self._process.lowest(given)
        return chosen_s

    def learn(self, deferral: Deferral) -> None:
        """Add it to the window; while exploiting, only now and then."""
        self._judged += 1
        if not self.exploits or not self._judged % LEARN_EVERY:
            self.trials += 1
            loss = abs(deferral.chosen_s - deferral.needed_s)
            self._process.add(deferral.chosen_s, _numbers(deferral.context), loss)


def _numbers(context: Context) -> tuple[float, float, float, float]:
    return (context.between_s, context.remaining_s, context.load_s, context.pause_s)
