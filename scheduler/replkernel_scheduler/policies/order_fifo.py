"""First come, first served, whoever asks."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Rank, Turn


class Fifo:
    """The order of arrival."""

    def key(self, turn: Turn) -> Rank:
        """Rank by arrival."""
        return (turn.number,)
