"""No pre-warmed processes."""

from __future__ import annotations


class NoPrewarming:
    """Start processes when they are needed."""

    def target(self, uses_per_s: float, ready_s: float, hosts: int) -> int:
        """Return 0."""
        return 0
