"""The last day of the cluster, for charts: how many GPUs did what, who waited, what moved.

Pure. Laws: it is counts alone, so everybody may see it; every list is bounded, the oldest goes; it begins
anew with the process.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

import msgspec
from replkernel_scheduler.effects import Effect, MigrationFailed, ReplicaMoved, UsageRecorded
from replkernel_scheduler.view import ClusterView

from replkernel_server.scheduling.metrics import ratio

SAMPLE_S = 15.0
"""How often the cluster is looked at."""
POINTS_MAX = 5_760
"""A day of them."""
POINTS_TOLD_MAX = 480
"""So many are told at most: of a longer time every second one, every third, …"""
HAPPENINGS_MAX = 500
DELAYS_MAX = 2_000

Kind = Literal["replica moved", "move given up", "hosts added", "hosts gone"]


class Point(msgspec.Struct, frozen=True):
    """The cluster at a Unix time; `ratio` is the subscription ratio."""

    at: float
    provisioned: int
    leased: int
    lingering: int
    waiting: int
    ratio: float


class Happening(msgspec.Struct, frozen=True):
    """Something that happened at a Unix time, so often."""

    at: float
    kind: Kind
    count: int


class Past(msgspec.Struct, frozen=True):
    """The past, oldest first; `delays` are the seconds that the last cells with GPUs waited for them."""

    points: list[Point]
    happenings: list[Happening]
    delays: list[float]


class PastKeeper:
    """Keeps what charts show."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)
        self._happenings: deque[Happening] = deque(maxlen=HAPPENINGS_MAX)
        self._delays: deque[float] = deque(maxlen=DELAYS_MAX)
        self._moved: Counter[Kind] = Counter()
        self._hosts = 0

    def observe(self, effects: list[Effect], _took_s: float) -> None:
        """Take note of what was decided since the last look."""
        for effect in effects:
            if isinstance(effect, ReplicaMoved):
                self._moved["replica moved"] += 1
            elif isinstance(effect, MigrationFailed):
                self._moved["move given up"] += 1
            elif isinstance(effect, UsageRecorded):
                self._delays.append(round(effect.usage.queued_s, 3))

    def look(self, view: ClusterView, wall: float) -> None:
        """Take note of the cluster as it is now."""
        phases: Counter[str] = Counter()
        for entry in view.leases:
            phases[entry.phase] += len(entry.lease.gpus)
        provisioned = sum(len(host.gpus) for host in view.hosts)
        lingering = phases.pop("lingering", 0)
        waiting = len(view.waiting)
        wall = round(wall, 1)
        self._points.append(
            Point(wall, provisioned, sum(phases.values()), lingering, waiting, round(ratio(view), 4))
        )
        more = len(view.hosts) - self._hosts
        if more and len(self._points) > 1:
            self._moved["hosts added" if more > 0 else "hosts gone"] = abs(more)
        self._hosts = len(view.hosts)
        self._happenings.extend(Happening(wall, kind, count) for kind, count in self._moved.items())
        self._moved.clear()

    def newest(self, waiting: int) -> list[Point]:
        """Return the cluster as it was at the last look, with who waits now; nothing before the first."""
        return [msgspec.structs.replace(self._points[-1], waiting=waiting)] if self._points else []

    def tell(self) -> Past:
        """Return the past, in no more points than a chart can show."""
        step = -(-len(self._points) // POINTS_TOLD_MAX) or 1
        points = list(self._points)[::-1][::step][::-1]
        return Past(points, list(self._happenings), list(self._delays))
