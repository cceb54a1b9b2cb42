"""Replicas stay; requests wait until one of their hosts has the GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from replkernel_scheduler.policies.protocol import Dice


class Never:
    """Move nothing for a cell's sake. (Hosts that are drained are still emptied.)"""

    enabled = False
    gives_up = False
    defer_s = 0.0

    def victim(self, hosts: Sequence[str], dice: Dice) -> str:
        """Return the first one; asked only for the sake of the protocol."""
        return hosts[0]
