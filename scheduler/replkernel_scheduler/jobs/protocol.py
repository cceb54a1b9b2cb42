"""What the core of jobs asks its policies: how nodes are divided, and who of a queue is next.

Law: policies only suggest, keep no state and read no clock; what they suggest is checked where it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.types import JobWanted, Part, Place


class Queues(Protocol):
    """How a cluster is divided into parts with queues of their own."""

    def parts(self, nodes: int) -> tuple[Part, ...]:
        """Return the parts that `nodes` nodes are divided into."""
        ...

    def part(self, wanted: JobWanted) -> int:
        """Return the number of the part that a job belongs to."""
        ...


class Discipline(Protocol):
    """Who of a queue starts."""

    def serve(
        self, line: Line, fresh: JobWanted | None, now: float
    ) -> Iterator[tuple[JobWanted, tuple[Place, ...]]]:
        """Yield jobs to be started and where; each is started before the next is asked for.

        `fresh` has just come, and nothing else has changed; None: cores came free.
        """
        ...
