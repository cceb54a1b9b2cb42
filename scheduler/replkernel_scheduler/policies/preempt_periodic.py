"""SRTF over all jobs at intervals: 60, 360 and 600 s stand for three systems' triggers (spec 3.5)."""

from __future__ import annotations

from replkernel_scheduler.policies.preempt_shortest import Shortest


class Periodic(Shortest):
    """Between two passes nobody starts and nobody is stopped."""

    on_arrival = False

    def __init__(self, every: float = 60.0) -> None:
        """Look at all jobs each `every` seconds."""
        super().__init__(patience=0)
        self.every_s = every
