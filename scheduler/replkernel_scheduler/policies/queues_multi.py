"""MQ(R, M_I, M_B): R percent of the nodes for interactive jobs alone, shared more (spec 4.4)."""

from __future__ import annotations

from replkernel_scheduler.jobs.types import JobWanted, Part


class MultiQueue:
    """A part for interactive jobs, and one for the others."""

    def __init__(self, r: float = 2.0, mi: int = 4, mb: int = 1) -> None:
        """Give `r` percent of the nodes to interactive jobs, `mi` a core; `mb` a core on the others."""
        self.r, self.mi, self.mb = r, mi, mb

    def parts(self, nodes: int) -> tuple[Part, ...]:
        """Return both; each has a node at least."""
        interactive = min(nodes - 1, max(1, int(nodes * self.r / 100)))
        return (Part("interactive", interactive, self.mi), Part("batch", nodes - interactive, self.mb))

    def part(self, wanted: JobWanted) -> int:
        """Return where a job belongs by its kind."""
        return 0 if wanted.interactive else 1
