"""SRTF: a newcomer stops jobs that have more left to compute, at once (spec 3.5, X = 0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replkernel_scheduler.policies.protocol import Rank
    from replkernel_scheduler.pool.protocol import Dice
    from replkernel_scheduler.pool.types import Context, Deferral, PoolLook


PATIENCE_H = 24.0
"""So long longer jobs may pass one that finds no room, by the specification (3.3)."""


class Shortest:
    """Arrivals and ends decide, nobody is deferred."""

    on_arrival = True
    every_s: float | None = None
    defers = False
    ranks = False

    def __init__(self, patience: float = PATIENCE_H) -> None:
        """Let longer jobs pass a wide one for `patience` hours at most; 0: without end."""
        self.patience_s = patience * 3600.0 or None

    def rank(self, look: PoolLook, now: float) -> Rank:
        """Return what it has left."""
        return (look.run_s - look.done_s,)

    def defer_s(self, context: Context, dice: Dice) -> float:
        """Return nothing."""
        return 0.0

    def learn(self, deferral: Deferral) -> None:
        """Learn nothing."""
