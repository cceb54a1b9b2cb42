"""When the lines are looked at, what each request is told to expect, and when it is told anew.

Pure: whoever drives it hands in what the core has decided, and lets it look when that is due. Laws: it
changes nothing of the core's; it looks at most every EVERY_S, and not at all while nobody waits.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from math import inf
from typing import NamedTuple

from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import LeaseGranted, LeaseQueued, LeaseRefused, UsageRecorded
from replkernel_scheduler.expecting.durations import Durations
from replkernel_scheduler.expecting.forecast import foresee, likely_s, range_s
from replkernel_scheduler.policies.protocol import Dice
from replkernel_scheduler.types import CellUsage, RequestId

EVERY_S = 2.0
AGAIN_S = 15.0
"""While somebody waits, the lines are looked at this often, whatever happens."""
SAME = 0.1
SAME_S = 3.0
"""A wait that differs by less than these from what was told is not told anew."""


class Expected(NamedTuple):
    """What a request that waits may expect: its place, so many seconds (None: nobody knows), and why.

    8 in 10 wait for a time within `range_s`, as seen from `at`.
    """

    request: RequestId
    place: int
    wait_s: float | None
    why: str
    at: float
    range_s: tuple[float, float] | None = None


class Foresight:
    """All that is expected."""

    def __init__(self, dice: Dice, again_s: float = AGAIN_S) -> None:
        """Start with nothing seen; `dice` is a random.Random."""
        self.durations = Durations()
        self._again_s = again_s
        self._dice = dice
        self._told: dict[RequestId, Expected] = {}
        self._newest: dict[RequestId, Expected] = {}
        self._due: float | None = None
        self._looked_at = float("-inf")

    def learn(self, rows: Iterable[CellUsage]) -> None:
        """Take note of leases that were over before, oldest first."""
        for row in rows:
            self.durations.observe(row)

    def wake(self, now: float) -> None:
        """Have the lines looked at: somebody may wait since before."""
        self._due = now

    def saw(self, effects: Iterable[object], now: float) -> None:
        """Take note of what was decided."""
        for effect in effects:
            match effect:
                case UsageRecorded(usage):
                    self.durations.observe(usage)
                case LeaseQueued(request, position) if position and request not in self._newest:
                    soon = max(now, self._looked_at + EVERY_S)
                    self._due = soon if self._due is None else min(soon, self._due)
                case LeaseGranted(lease):
                    self._forget(lease.request)
                case LeaseRefused(request):
                    self._forget(request)

    def due(self) -> float | None:
        """Return when to look next; None while nobody waits."""
        return self._due

    def left_s(self, request: RequestId, now: float) -> float | None:
        """Return how long a request is expected to wait from now on; None: nobody knows."""
        known = self._newest.get(request)
        if known is None or known.wait_s is None:
            return None
        return max(1.0, known.wait_s - (now - known.at))

    def range_s(self, request: RequestId) -> tuple[float, float] | None:
        """Return how long a request waits 8 times in 10, as of the last look; None: nobody knows."""
        known = self._newest.get(request)
        return None if known is None else known.range_s

    def why(self, request: RequestId) -> str:
        """Return what a request waits for."""
        known = self._newest.get(request)
        return "" if known is None else known.why

    def look(self, core: SchedulerCore, now: float) -> Generator[None, None, list[Expected]]:
        """Yield after each slice of the work; return what is to be told, of those for whom it has changed."""
        self._due, self._looked_at = None, now
        lines = core.lines(self.durations)
        waits = {one.request: one for one in lines.waiting}
        yield
        found: dict[RequestId, list[float]] = {}
        if self.durations.enough and waits:
            found = yield from foresee(lines, self._dice)
        newest: dict[RequestId, Expected] = {}
        whys: dict[frozenset[int], str] = {}
        for request, one in waits.items():
            place = core.place_of(request)  # Others had their turn between the slices.
            if place is not None:
                waits_s = found.get(request, [])
                pools = frozenset((*one.own, *one.elsewhere))
                if pools not in whys:
                    whys[pools] = lines.why(pools)
                newest[request] = Expected(
                    request, place, likely_s(waits_s), whys[pools], now, range_s(waits_s)
                )
        self._newest = newest
        self._told = {request: told for request, told in self._told.items() if request in newest}
        changed = [one for one in newest.values() if not self._is_told(one)]
        self._told |= {one.request: one for one in changed}
        if newest and self._again_s < inf:
            again = now + self._again_s
            self._due = again if self._due is None else min(self._due, again)
        return changed

    def _is_told(self, one: Expected) -> bool:
        """Say whether a request has been told as much."""
        told = self._told.get(one.request)
        if told is None or one.wait_s is None or told.wait_s is None:
            return told is not None and one.wait_s == told.wait_s
        return abs(one.wait_s - told.wait_s) <= max(SAME_S, SAME * told.wait_s)

    def _forget(self, request: RequestId) -> None:
        self._told.pop(request, None)
        self._newest.pop(request, None)
