"""When and where the first of a queue is thought to start, and who may go before it (EASY backfilling).

Law: jobs are taken off in the order of the ends they are thought to have, until the first one fits. Another
may start before it if that is thought not to make it later (spec 4.1): it ends before, or leaves the reserved
cores alone. Where cores are shared it must leave the reserved nodes, for a process beside the first one's
would slow it, and it slows nobody down who is thought to end before.
"""

from __future__ import annotations

from math import ulp

from replkernel_scheduler.jobs.lengths import ANY_S
from replkernel_scheduler.jobs.line import Line, Running
from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.types import JobWanted, Place


class Ahead:
    """The nodes as they will be when jobs are taken off that are thought to end before."""

    def __init__(self, line: Line, wanted: JobWanted, shape: Shape) -> None:
        """Start as it is now; `fit` counts the nodes that have room for `wanted`."""
        table = line.table
        self._table, self._each, self._needed_gb = table, shape.each, shape.each * wanted.memory_gb
        self._loads: dict[int, list[int]] = {}
        self._assigned, self._free, self._memory = (
            table.assigned.copy(),
            table.free.copy(),
            table.memory.copy(),
        )
        self.fit = sum([self._fits(node) for node in range(len(table.free))])

    def take_off(self, run: Running) -> None:
        """Take a job off its nodes."""
        most, memory_gb = self._table.most, run.wanted.memory_gb
        for node, cores in run.places:
            before = self._fits(node)
            loads = self._loads_of(node)
            for core in cores:
                self._free[node] += loads[core] == most
                loads[core] -= 1
            self._assigned[node] -= len(cores)
            if self._assigned[node]:
                self._memory[node] += memory_gb * len(cores)
            else:
                self._memory[node] = self._table.memory_of[node]
            self.fit += self._fits(node) and not before

    def emptiest(self, count: int) -> frozenset[int]:
        """Return the nodes with room that have the fewest processes."""
        fit = [node for node in range(len(self._free)) if self._fits(node)]
        fit.sort(key=self._assigned.__getitem__)
        return frozenset(fit[:count])

    def leaves_room(self, place: Place, memory_gb: float) -> bool:
        """Say whether there is room on a node beside such processes, where nobody shares a core."""
        memory = self._memory[place.node] - memory_gb * len(place.cores)
        return self._free[place.node] - len(place.cores) >= self._each and memory >= self._needed_gb

    def _fits(self, node: int) -> bool:
        return self._free[node] >= self._each and self._memory[node] >= self._needed_gb

    def _loads_of(self, node: int) -> list[int]:
        loads = self._loads.get(node)
        if loads is None:
            loads = self._loads[node] = self._table.loads[node].copy()
        return loads


class AheadAlone:
    """The same where nobody shares a core and memory is no limit: free cores are all there is to know.

    Law: no question looks at every node; the table has them by their processes, but for those that changed.
    """

    def __init__(self, line: Line, wanted: JobWanted, shape: Shape) -> None:
        """Start as it is now."""
        self._table, self._each = line.table, shape.each
        self._free = line.table.free.copy()
        self._changed: set[int] = set()
        self.fit = line.table.with_free[shape.each]

    def take_off(self, run: Running) -> None:
        """Take a job off its nodes."""
        free, each, changed = self._free, self._each, self._changed
        for node, cores in run.places:
            before = free[node]
            after = free[node] = before + len(cores)
            changed.add(node)
            if before < each <= after:
                self.fit += 1

    def emptiest(self, count: int) -> frozenset[int]:
        """Return the nodes with room that have the fewest processes; of equals the first ones."""
        free, changed, by_assigned = self._free, self._changed, self._table.by_assigned
        others: dict[int, list[int]] = {}
        for node in changed:
            others.setdefault(free[node], []).append(node)
        chosen: list[int] = []
        for left in range(self._table.cores, self._each - 1, -1):
            level = by_assigned[self._table.cores - left]
            there = [node for node in level if node not in changed] if changed else level
            there = there + others[left] if left in others else there
            more = count - len(chosen)
            if len(there) >= more:
                chosen += sorted(there)[:more]
                break
            chosen += there
        return frozenset(chosen)

    def leaves_room(self, place: Place, memory_gb: float) -> bool:
        """Say whether there is room on a node beside such processes."""
        return self._free[place.node] - len(place.cores) >= self._each


class Reservation:
    """For one job, as things are now; it holds until somebody starts or ends."""

    def __init__(self, line: Line, wanted: JobWanted, shape: Shape, now: float) -> None:
        """Look ahead until `wanted` has room; `at` is when, `nodes` are where."""
        self._line = line
        self.changes = line.changes
        self._ahead = ahead = (AheadAlone if line.alone else Ahead)(line, wanted, shape)
        for run in line.by_end(now):
            ahead.take_off(run)
            if ahead.fit >= shape.nodes:
                self.at = max(now, run.ends)
                self.nodes = ahead.emptiest(shape.nodes)
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

    def longest_s(self, shape: Shape, now: float) -> float:
        """Return how long a job of this shape may be that starts before the first one, where jobs are alone.

        `lets` has the last word: rounding may have let one in.
        """
        if self.lets(JobWanted("", 0, float("inf")), shape, now) is not None:
            return ANY_S
        return max(0.0, self.at - now) + 4 * ulp(self.at)

    def _may(self, wanted: JobWanted, places: tuple[Place, ...], now: float) -> bool:
        line = self._line
        multiplicity = 1
        if line.shared:
            if any(run.ends <= self.at for run in line.slowed(places)):
                return False
            multiplicity += line.multiplicity(places)
        if now + wanted.requested_s * multiplicity <= self.at:
            return True
        ahead, nodes = self._ahead, self.nodes
        for place in places:
            if place.node in nodes and (line.shared or not ahead.leaves_room(place, wanted.memory_gb)):
                return False
        return True
