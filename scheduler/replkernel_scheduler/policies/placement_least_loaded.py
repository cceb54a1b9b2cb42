"""Most idle GPUs first, then the lower subscription (the paper, spec 1.2)."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import PoolLoad, Rank


class LeastLoaded:
    """Spread what runs: the next cell finds idle GPUs wherever its replicas are."""

    def rank(self, load: PoolLoad) -> Rank:
        """Rank by idle GPUs, then by the subscription ratio."""
        return (-load.idle, load.subscribed / max(1, load.host_gpus))
