"""How often pre-warmed processes are used and how long they take, for policies that say how many to keep.

Law: the rate forgets at RATE_S; nothing here decides.
"""

from __future__ import annotations

from math import exp

RATE_S = 300.0
WAIT_WEIGHT = 0.1


class PrewarmRate:
    """Uses a second over all hosts, and the mean time until a pre-warmed process is ready."""

    __slots__ = ("at", "ready_s", "weight")

    def __init__(self, ready_s: float) -> None:
        """Start with no use; a process is first thought to take `ready_s`."""
        self.ready_s = ready_s
        self.weight = 0.0
        self.at = 0.0

    def used(self, now: float) -> None:
        """Note one use, of a pre-warmed process or of one that had to be started."""
        self.weight = 1.0 + self._weight(now)
        self.at = now

    def uses_per_s(self, now: float) -> float:
        """Return the rate."""
        return self._weight(now) / RATE_S

    def _weight(self, now: float) -> float:
        return self.weight * exp(-max(0.0, now - self.at) / RATE_S)
