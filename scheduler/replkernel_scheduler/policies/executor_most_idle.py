"""The replica's host with most idle GPUs, wherever the last cell ran."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Rank, ReplicaHost


class MostIdle:
    """Even out what runs."""

    anywhere = False

    def rank(self, host: ReplicaHost, *, is_last: bool) -> Rank:
        """Rank by idle GPUs, the last executor first among equals."""
        return (-host.idle, not is_last, host.name)
