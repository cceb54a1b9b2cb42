"""EASY backfilling: others pass the first that waits where that is thought not to make it later."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Ahead


class EasyBackfill:
    """Only the first of a host is reserved for: whoever ends before, or leaves it its GPUs, passes."""

    enabled = True

    def may_pass(self, ends_at: float, gpus: int, ahead: Ahead) -> bool:
        """Let pass who will be over by then, or takes what is left beside it."""
        return ends_at <= ahead.at or gpus <= ahead.spare
