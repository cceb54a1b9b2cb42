"""Lowest subscription first, whatever runs now: replicas are spread evenly."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import PoolLoad, Rank


class Spread:
    """Even out subscriptions."""

    def rank(self, load: PoolLoad) -> Rank:
        """Rank by the subscription ratio, then by idle GPUs, most first."""
        return (load.subscribed / max(1, load.host_gpus), -load.idle)
