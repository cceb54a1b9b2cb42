"""As many as are used while one gets ready: Little's law (spec 1.6)."""

from __future__ import annotations

from math import ceil

PER_HOST_MAX = 16


class Little:
    """N = ceil(rate x wait), spread over the hosts; at least one each, at most PER_HOST_MAX."""

    def target(self, uses_per_s: float, ready_s: float, hosts: int) -> int:
        """Return the number for one host."""
        return min(PER_HOST_MAX, max(1, ceil(uses_per_s * ready_s / max(1, hosts))))
