"""By name: the first hosts that will do, whatever their load."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import PoolLoad, Rank


class Static:
    """Treat all hosts alike, so that only their names decide."""

    def rank(self, load: PoolLoad) -> Rank:
        """Rank all hosts the same."""
        return ()
