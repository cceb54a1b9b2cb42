"""What the core of jobs asks the machines: what jobs on shared cores have done.

Law: asking changes nothing, and the same question at the same time has the same answer.
"""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """What the machines know of jobs that run on cores that are shared."""

    def done_s(self, job: str, now: float) -> float:
        """Return how many seconds of its run a job has behind it, counted as if it were alone."""
        ...
