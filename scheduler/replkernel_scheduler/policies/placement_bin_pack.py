"""Fewest idle GPUs first, then the higher subscription: hosts become empty and can be released."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import PoolLoad, Rank


class BinPack:
    """Fill one host before the next."""

    def rank(self, load: PoolLoad) -> Rank:
        """Rank by idle GPUs, fewest first; then by subscription, most first."""
        return (load.idle, -load.subscribed / max(1, load.host_gpus))
