"""The lines are played forward, many times, over ends that are drawn; told is what came out most often.

Law: bounded work, in slices between which others have their turn. The rules are those of serving.py as far as
they decide who is next: in the queue's order on each host, nobody before a claim; who may move takes what is
left elsewhere. Requests to come are not foreseen, nor who passes by backfilling.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from heapq import heapify, heappop, heappush
from math import inf

from replkernel_scheduler.expecting.lines import Lines, Waits
from replkernel_scheduler.policies.protocol import Dice
from replkernel_scheduler.types import RequestId, Shape

PLAYS = 40
FACTOR = 1.5
"""What is told is to be within this factor of what comes."""
LOW, HIGH = 0.05, 0.95
"""Of the waits that came out, those between are told as a range."""
BEYOND = 1.15
"""It is wider by this at both ends: who comes later is not played, nor what cells of a day have in common."""
HORIZON_S = 30 * 86_400.0
ENDS_MAX = 20_000
"""So many ends are played at most."""


def foresee(lines: Lines, dice: Dice) -> Generator[None, None, dict[RequestId, list[float]]]:
    """Yield after each time that the lines are played; return the waits that came out, sorted, by request."""
    found: dict[RequestId, list[float]] = {waits.request: [] for waits in lines.waiting}
    field = _Field(lines)
    for _ in range(PLAYS):
        _Play(lines, field, dice).run(found)
        yield
    for waits_s in found.values():
        waits_s.sort()
    return found


def likely_s(waits_s: list[float]) -> float | None:
    """Return the wait that most of these are within FACTOR of; None if most of them have no end in sight."""
    if not waits_s or waits_s[len(waits_s) // 2] == inf:
        return None
    best, most = waits_s[0], 0
    for at, shortest in enumerate(waits_s):
        if shortest == inf:
            break
        longest = max(shortest, 1.0) * FACTOR * FACTOR
        count = bisect_right(waits_s, longest) - at
        if count > most:
            best, most = (max(shortest, 1.0) * waits_s[at + count - 1]) ** 0.5, count
    return best


def range_s(waits_s: list[float]) -> tuple[float, float] | None:
    """Return between which waits 8 in 10 are; None if too many of these have no end in sight."""
    if not waits_s or waits_s[int(HIGH * len(waits_s))] == inf:
        return None
    shortest, longest = waits_s[int(LOW * len(waits_s))], waits_s[int(HIGH * len(waits_s))]
    return max(1.0, shortest) / BEYOND, max(1.0, longest) * BEYOND


class _Field:
    """Who waits on which pool, in the queue's order, by number; of those for any host, by shape."""

    def __init__(self, lines: Lines) -> None:
        self.own: list[list[int]] = [[] for _ in lines.free]
        self.lookers: list[list[int]] = [[] for _ in lines.free]
        self.shapes: dict[Shape, list[int]] = {}
        for number, waits in enumerate(lines.waiting):
            if waits.shape is not None:
                self.shapes.setdefault(waits.shape, []).append(number)
            for pool in waits.own:
                self.own[pool].append(number)
            for pool in waits.elsewhere:
                self.lookers[pool].append(number)


class _Play:
    """One time."""

    def __init__(self, lines: Lines, field: _Field, dice: Dice) -> None:
        self._lines, self._field, self._dice = lines, field, dice
        self._free = lines.free.copy()
        self._ends = [
            (run.left.left_s(dice), run.pool, run.milli)
            for run in (*lines.running, *lines.booked, *lines.back)
        ]
        heapify(self._ends)
        self._claims = {
            number: waits.claim for number, waits in enumerate(lines.waiting) if waits.claim is not None
        }
        self._heads = dict.fromkeys(field.shapes, 0)
        self._served: dict[int, float] = {}

    def run(self, found: dict[RequestId, list[float]]) -> None:
        """Play until everybody is served, or nothing ends any more."""
        for pool, free in enumerate(self._free):
            if free:
                self._serve(pool, 0.0)
        waiting, ends, served = self._lines.waiting, self._ends, self._served
        left = ENDS_MAX
        while ends and len(served) < len(waiting) and left and ends[0][0] < HORIZON_S:
            at, pool, milli = heappop(ends)
            self._free[pool] += milli
            left -= 1
            self._serve(pool, at)
        for number, waits in enumerate(waiting):
            found[waits.request].append(served.get(number, inf))

    def _serve(self, pool: int, at: float) -> None:
        """Serve in the queue's order what a pool has room for, up to the first claim that it has none for."""
        host, waiting, served = self._lines.host_of[pool], self._lines.waiting, self._served
        for number in self._field.own[pool]:
            if number in served:
                continue
            waits = waiting[number]
            if waits.milli <= self._free[pool]:
                self._give(number, waits, pool, at)
            elif self._claims.get(number) == host:
                return
            if not self._free[pool]:
                return
        for number in self._field.lookers[pool]:
            if number not in served and waiting[number].milli <= self._free[pool]:
                self._give(number, waiting[number], pool, at)

    def _give(self, number: int, waits: Waits, pool: int, at: float) -> None:
        self._served[number] = at
        self._claims.pop(number, None)
        self._free[pool] -= waits.milli
        heappush(self._ends, (at + waits.lasts.left_s(self._dice), pool, waits.milli))
        if waits.shape is not None:
            self._next_head(waits.shape)

    def _next_head(self, shape: Shape) -> None:
        """Have the next of a shape claim the host that has most of what it wants, of those unclaimed."""
        line, head = self._field.shapes[shape], self._heads[shape]
        while head < len(line) and line[head] in self._served:
            head += 1
        self._heads[shape] = head
        if head < len(line) and line[head] not in self._claims:
            taken, host_of = set(self._claims.values()), self._lines.host_of
            open_to_it = [pool for pool in self._lines.waiting[line[head]].own if host_of[pool] not in taken]
            if open_to_it:
                self._claims[line[head]] = host_of[max(open_to_it, key=self._free.__getitem__)]
