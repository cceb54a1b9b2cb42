"""What the core of a pool asks its policies.

Law: a policy says when to act; whom to stop is the core's, the same for all. A predictor learns from what it
is told, and from nothing else; dice are handed in.
"""

from __future__ import annotations

from typing import Protocol

from replkernel_scheduler.policies.protocol import Rank
from replkernel_scheduler.pool.types import Context, Deferral, PoolLook


class Dice(Protocol):
    """What a policy may draw from."""

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        ...


class Preempting(Protocol):
    """When jobs are stopped for shorter ones."""

    @property
    def on_arrival(self) -> bool:
        """Say whether a newcomer may stop others at once."""
        ...

    @property
    def every_s(self) -> float | None:
        """Return the interval at which all jobs are looked at anew; None: arrivals and ends decide."""
        ...

    @property
    def defers(self) -> bool:
        """Say whether `defer_s` is to be asked; what came of it is learned then."""
        ...

    @property
    def patience_s(self) -> float | None:
        """Return how long longer jobs may pass one for want of room; None: without end."""
        ...

    @property
    def ranks(self) -> bool:
        """Say whether `rank` orders jobs at each interval; else who has the least left goes first."""
        ...

    def rank(self, look: PoolLook, now: float) -> Rank:
        """Return the rank of a job that runs or waits; among equals who came first goes first."""
        ...

    def defer_s(self, context: Context, dice: Dice) -> float:
        """Return how long to wait before others are stopped for a newcomer."""
        ...

    def learn(self, deferral: Deferral) -> None:
        """Take note of what would have been best."""
        ...
