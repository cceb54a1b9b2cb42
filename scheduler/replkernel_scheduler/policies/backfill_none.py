"""No backfilling: where somebody waits, nobody behind it is served."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Ahead


class NoBackfill:
    """The first to wait on a host stops whoever comes after it."""

    enabled = False

    def may_pass(self, ends_at: float, gpus: int, ahead: Ahead) -> bool:
        """Let nobody pass."""
        return False
