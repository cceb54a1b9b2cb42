"""Lazer: a newcomer stops others after a deferral that is predicted from what earlier ones would have needed.

Law: it is SRTF with X = predict(context) (spec 3.2). Its predictor is the one thing here that keeps a state:
what it learned; the same deferrals and dice give the same predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replkernel_scheduler.policies.preempt_shortest import PATIENCE_H, Shortest
from replkernel_scheduler.pool.predicting import Bayes, Grid, Predictor, Uniform

if TYPE_CHECKING:
    from replkernel_scheduler.pool.protocol import Dice
    from replkernel_scheduler.pool.types import Context, Deferral


JUDGED_FROM = 110
"""All predictors have learned as much as they may by then."""


class Deferred(Shortest):
    """`by`: bayes, or random and grid search to compare with."""

    defers = True

    def __init__(self, by: str = "bayes", patience: float = PATIENCE_H) -> None:
        """Start without having learned anything."""
        super().__init__(patience)
        makers: dict[str, type[Predictor]] = {"bayes": Bayes, "random": Uniform, "grid": Grid}
        self.predictor = makers[by]()
        self.judged = 0
        self.loss_s = 0.0
        """Sum of |X - F| of the deferrals judged after the first JUDGED_FROM."""

    def defer_s(self, context: Context, dice: Dice) -> float:
        """Return the predicted deferral."""
        return self.predictor.predict(context, dice)

    def learn(self, deferral: Deferral) -> None:
        """Hand it to the predictor."""
        self.judged += 1
        if self.judged > JUDGED_FROM:
            self.loss_s += abs(deferral.chosen_s - deferral.needed_s)
        self.predictor.learn(deferral)
