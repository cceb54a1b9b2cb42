"""Priority first, then whoever used fewest GPU-seconds lately, then first come, first served."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Rank, Turn


class FairShare:
    """Start-time fair queuing between users, first in, first out for each of them."""

    def key(self, turn: Turn) -> Rank:
        """Rank by priority, fair share and arrival."""
        return (-turn.priority, turn.tag, turn.number)
