"""The same number on every host (spec 1.6)."""

from __future__ import annotations


class Minimum:
    """Refill below a fixed number."""

    def __init__(self, count: int = 3) -> None:
        """Take the number."""
        self.count = count

    def target(self, uses_per_s: float, ready_s: float, hosts: int) -> int:
        """Return it."""
        return self.count
