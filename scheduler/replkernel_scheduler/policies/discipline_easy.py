"""EASY backfilling: others pass the first of the queue where that is thought not to make it later."""

from __future__ import annotations

from collections.abc import Iterator

from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.reservation import Reservation
from replkernel_scheduler.jobs.types import JobWanted, Place


class Easy:
    """Start from the front as long as there is room; then those behind it that its reservation lets by."""

    def serve(
        self, line: Line, fresh: JobWanted | None, now: float
    ) -> Iterator[tuple[JobWanted, tuple[Place, ...]]]:
        """Yield the jobs to be started and where."""
        if fresh is None or len(line.waiting) == 1:
            yield from self._front(line)
        if not line.waiting:
            return
        waiting = list(line.waiting.values())
        first, others = waiting[0], waiting[1:] if fresh is None else waiting[-1:]
        reservation: Reservation | None = None
        with_free = line.table.with_free
        for wanted, shape in others:
            if with_free[shape.each] < shape.nodes or wanted is first[0]:
                continue
            if reservation is None or reservation.changes != line.changes:
                reservation = Reservation(line, *first, now)
            places = reservation.lets(wanted, shape, now)
            if places is not None:
                yield wanted, places

    def _front(self, line: Line) -> Iterator[tuple[JobWanted, tuple[Place, ...]]]:
        for wanted, shape in list(line.waiting.values()):
            places = line.table.find(shape, wanted.memory_gb)
            if places is None:
                return
            yield wanted, places
