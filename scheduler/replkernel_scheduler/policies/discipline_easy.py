"""EASY backfilling: others pass the first of the queue where that is thought not to make it later."""

from __future__ import annotations

from collections.abc import Iterator

from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.reservation import Reservation
from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.types import JobWanted, Place


class Easy:
    """Start from the front as long as there is room; then those behind it that its reservation lets by."""

    def serve(
        self, line: Line, fresh: JobWanted | None, now: float
    ) -> Iterator[tuple[JobWanted, tuple[Place, ...]]]:
        """Yield the jobs to be started and where."""
        waiting = line.waiting
        if fresh is None or len(waiting) == 1:
            while waiting:
                wanted, shape = next(iter(waiting.values()))
                places = line.table.find(shape, wanted.memory_gb)
                if places is None:
                    break
                yield wanted, places
        if len(waiting) < 2:
            return
        first = next(iter(waiting.values()))
        reservation: Reservation | None = None
        with_free = line.table.with_free
        others: Iterator[tuple[JobWanted, Shape]] = (
            line.that_may_fit() if fresh is None else iter([waiting[fresh.job]])
        )
        for wanted, shape in others:
            if with_free[shape.each] < shape.nodes or wanted is first[0]:
                continue
            if reservation is None or reservation.changes != line.changes:
                reservation = Reservation(line, *first, now)
            places = reservation.lets(wanted, shape, now)
            if places is not None:
                yield wanted, places
