"""The last executor if it has the GPUs, else the replica's host with most idle ones (spec 1.4)."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Rank, ReplicaHost


class LastThenIdle:
    """Stay where the state is."""

    anywhere = False

    def rank(self, host: ReplicaHost, *, is_last: bool) -> Rank:
        """Rank the last executor first, then by idle GPUs."""
        return (not is_last, -host.idle, host.name)
