"""SRTF: a newcomer stops jobs that have more left to compute, at once (spec 3.5, X = 0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replkernel_scheduler.pool.protocol import Dice
    from replkernel_scheduler.pool.types import Context, Deferral


class Shortest:
    """Arrivals and ends decide, nobody is deferred."""

    on_arrival = True
    every_s: float | None = None
    defers = False

    def defer_s(self, context: Context, dice: Dice) -> float:
        """Return nothing."""
        return 0.0

    def learn(self, deferral: Deferral) -> None:
        """Learn nothing."""
