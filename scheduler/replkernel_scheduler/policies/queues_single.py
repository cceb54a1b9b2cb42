"""SQ(M): all jobs in one queue, up to M processes on each core (spec 4.4)."""

from __future__ import annotations

from replkernel_scheduler.jobs.types import JobWanted, Part


class SingleQueue:
    """One part."""

    def __init__(self, m: int = 1) -> None:
        """Let `m` processes share a core."""
        self.m = m

    def parts(self, nodes: int) -> tuple[Part, ...]:
        """Return one part with all nodes."""
        return (Part("all", nodes, self.m),)

    def part(self, wanted: JobWanted) -> int:
        """Return the only one."""
        return 0
