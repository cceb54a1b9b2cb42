"""EASY backfilling: others pass the first of the queue where that is thought not to make it later."""

from __future__ import annotations

from collections.abc import Iterator

from replkernel_scheduler.jobs.lengths import Lengths
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
        if fresh is None and line.alone:
            yield from _passing(line, now)
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


def _passing(line: Line, now: float) -> Iterator[tuple[JobWanted, tuple[Place, ...]]]:
    """Yield those that pass the first, in their order, where jobs are alone.

    Of each shape only the first is looked at that is short enough.
    """
    with_free = line.table.with_free
    first = next(iter(line.waiting.values()))
    head = line.lengths[first[1]].first(-1)
    assert head is not None
    after = head[0]
    reservation: Reservation | None = None
    while True:
        best: tuple[int, JobWanted, tuple[Place, ...]] | None = None
        for shape, lengths in line.lengths.items():
            if with_free[shape.each] < shape.nodes or lengths.first(after) is None:
                continue
            if reservation is None or reservation.changes != line.changes:
                reservation = Reservation(line, *first, now)
            found = _first_let(reservation, lengths, shape, after, now)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is None:
            return
        after = best[0]
        yield best[1], best[2]


def _first_let(
    reservation: Reservation, lengths: Lengths, shape: Shape, after: int, now: float
) -> tuple[int, JobWanted, tuple[Place, ...]] | None:
    """Return the first of a shape that may start before the first of all, and where."""
    longest_s = reservation.longest_s(shape, now)
    while (found := lengths.first(after, longest_s)) is not None:
        after, wanted = found
        places = reservation.lets(wanted, shape, now)
        if places is not None:
            return after, wanted, places
    return None
