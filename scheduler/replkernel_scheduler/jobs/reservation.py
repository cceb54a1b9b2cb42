"""When and where the first of a queue is thought to start, and who may go before it (EASY backfilling).

Law: jobs are taken off in the order of the ends they are thought to have, until the first one fits. Another
may start before it if that is thought not to make it later (spec 4.1): it ends before, or leaves the reserved
cores; and it slows nobody down who is thought to end before.
"""

from __future__ import annotations

from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.types import JobWanted, Place


class Reservation:
    """For one job, as things are now; it holds until somebody starts or ends."""

    def __init__(self, line: Line, wanted: JobWanted, shape: Shape, now: float) -> None:
        """Look ahead until `wanted` has room; `at` is when, `nodes` are where."""
        self._line, self._wanted, self._shape = line, wanted, shape
        self.at, self.nodes = now, frozenset[int]()
        self.changes = line.changes
        self._then = then = line.table.copy()
        for ends, _, run in line.by_end:
            then.give(run.places, run.wanted.memory_gb)
            self.at = max(now, ends)
            places = then.find(shape, wanted.memory_gb)
            if places is not None:
                self.nodes = frozenset(place.node for place in places)
                return
        raise AssertionError("a job is in a queue whose empty nodes would not take it")

    def lets(self, wanted: JobWanted, shape: Shape, now: float) -> tuple[Place, ...] | None:
        """Return where a job may start before the first one; None if it may not."""
        table = self._line.table
        places = table.find(shape, wanted.memory_gb)
        if places is None:
            return None
        if self._may(wanted, places, now):
            return places
        places = table.find(shape, wanted.memory_gb, self.nodes)
        return places if places is not None and self._may(wanted, places, now) else None

    def _may(self, wanted: JobWanted, places: tuple[Place, ...], now: float) -> bool:
        line = self._line
        if line.part.multiplicity > 1 and any(run.ends <= self.at for run in line.sharers(places)):
            return False
        ends = now + wanted.requested_s * (line.multiplicity(places) + 1)
        return ends <= self.at or all(
            self._leaves_room(place, wanted) for place in places if place.node in self.nodes
        )

    def _leaves_room(self, place: Place, wanted: JobWanted) -> bool:
        """Say whether the first one still fits on this node when it is its turn."""
        then, node = self._then, place.node
        loads = then.loads[node]
        full = sum([loads[core] + 1 == then.most for core in place.cores])
        memory = then.memory[node] - wanted.memory_gb * len(place.cores)
        return (
            then.free[node] - full >= self._shape.each and memory >= self._wanted.memory_gb * self._shape.each
        )
