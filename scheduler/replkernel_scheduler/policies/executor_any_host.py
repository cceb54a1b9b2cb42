"""Any host may run any cell: for baselines that start a process for each cell."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Rank, ReplicaHost


class AnyHost:
    """Leave it to placement."""

    anywhere = True

    def rank(self, host: ReplicaHost, *, is_last: bool) -> Rank:
        """Rank by idle GPUs, for requests that name their hosts."""
        return (-host.idle, host.name)
