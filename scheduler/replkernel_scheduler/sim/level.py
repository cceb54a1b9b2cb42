"""A quantity that changes in steps, and its exact integral over time."""

from __future__ import annotations


class Level:
    """The present value, the most there was, and value-seconds so far."""

    __slots__ = ("_since", "area", "peak", "value")

    def __init__(self) -> None:
        """Start at 0, at time 0."""
        self.value = self.peak = 0
        self.area = self._since = 0.0

    def add(self, delta: int, now: float) -> None:
        """Change the value."""
        self.area += self.value * (now - self._since)
        self._since = now
        self.value += delta
        self.peak = max(self.peak, self.value)

    def until(self, now: float) -> float:
        """Return the value-seconds until `now`."""
        return self.area + self.value * (now - self._since)
