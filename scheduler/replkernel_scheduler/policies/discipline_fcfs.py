"""First come, first served: nobody passes the first of the queue."""

from __future__ import annotations

from collections.abc import Iterator

from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.types import JobWanted, Place


class Fcfs:
    """Start from the front as long as there is room."""

    def serve(
        self, line: Line, fresh: JobWanted | None, now: float
    ) -> Iterator[tuple[JobWanted, tuple[Place, ...]]]:
        """Yield the jobs to be started and where."""
        if fresh is not None and len(line.waiting) > 1:
            return
        while line.waiting:
            wanted, shape = next(iter(line.waiting.values()))
            places = line.table.find(shape, wanted.memory_gb)
            if places is None:
                return
            yield wanted, places
