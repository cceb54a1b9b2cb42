"""The last day of the cluster, for charts: how many GPUs did what, who waited, what moved.

Pure. Laws: it names no user, so everybody may see it; every list is bounded, the oldest goes. What a look has
found is a sample; the journal keeps these, so the past outlives the process.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

import msgspec
from replkernel_scheduler.effects import MigrationFailed, ReplicaMoved, UsageRecorded
from replkernel_scheduler.harvest.asking import is_of_job
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.view import ClusterView, LeaseView, gpu_phases

from replkernel.leasing.wire import GpuUse
from replkernel_server.scheduling.metrics import ratio

SAMPLE_S = 15.0
"""How often the cluster is looked at."""
POINTS_MAX = 5_760
"""A day of them."""
POINTS_TOLD_MAX = 480
"""So many are told at most: of a longer time every second one, every third, …"""
HAPPENINGS_MAX = 500
DELAYS_MAX = 2_000
PAST_S = SAMPLE_S * POINTS_MAX
GPU_LOOKS = 4
"""At every so many-th look it is noted how busy each GPU is."""
GPUS_MAX = 32
"""Of so many GPUs."""
GPU_POINTS_TOLD_MAX = 120

T = TypeVar("T")
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


class Busy(msgspec.Struct, frozen=True):
    """How much a GPU computed (0 to 1) at a Unix time, and how many GiB it held; `gpu` is `host/uuid`."""

    at: float
    gpu: str
    utilisation: float
    memory_gib: float


class Past(msgspec.Struct, frozen=True):
    """The past, oldest first; `delays` are the seconds that the last cells with GPUs waited for them."""

    points: list[Point]
    happenings: list[Happening]
    delays: list[float]
    busy: list[Busy] = []


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one look has found, and what was decided since the look before."""

    point: Point
    happenings: list[Happening] = []
    delays: list[float] = []
    busy: list[Busy] = []


class PastKeeper:
    """Keeps what charts show."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)
        self._happenings: deque[Happening] = deque(maxlen=HAPPENINGS_MAX)
        self._delays: deque[float] = deque(maxlen=DELAYS_MAX)
        self._gpus: deque[list[Busy]] = deque(maxlen=POINTS_MAX // GPU_LOOKS)
        self._moved: Counter[Kind] = Counter()
        self._waited: list[float] = []
        self._hosts: int | None = None
        self._gpus_in = 0
        """After so many looks GPUs are looked at again."""

    def restore(self, samples: Iterable[Sample]) -> None:
        """Go on from what another process has found, oldest first."""
        for sample in samples:
            self._take(sample)

    def observe(self, effects: list[HarvestEffect], _took_s: float) -> None:
        """Take note of what was decided since the last look."""
        for effect in effects:
            if isinstance(effect, ReplicaMoved):
                self._moved["replica moved"] += 1
            elif isinstance(effect, MigrationFailed):
                self._moved["move given up"] += 1
            elif isinstance(effect, UsageRecorded):
                self._waited = [*self._waited, round(effect.usage.queued_s, 3)][-DELAYS_MAX:]

    def look(
        self, view: ClusterView, wall: float, uses: Mapping[str, Mapping[str, GpuUse]] | None = None
    ) -> Sample:
        """Take note of the cluster as it is now, with how busy each host's GPUs are; return it to be kept."""
        cells: list[LeaseView] = []
        phases: Counter[str] = Counter()
        for entry in view.leases:
            if is_of_job(entry.lease.request):
                phases["job"] += len(entry.lease.gpus)
            else:
                cells.append(entry)
        phases.update(gpu_phases(cells).values())
        provisioned = sum(len(host.gpus) for host in view.hosts)
        lingering = phases.pop("lingering", 0)
        waiting = len(view.waiting)
        wall = round(wall, 1)
        more = 0 if self._hosts is None else len(view.hosts) - self._hosts
        if more:
            self._moved["hosts added" if more > 0 else "hosts gone"] = abs(more)
        self._hosts = len(view.hosts)
        sample = Sample(
            Point(wall, provisioned, sum(phases.values()), lingering, waiting, round(ratio(view), 4)),
            [Happening(wall, kind, count) for kind, count in self._moved.items()],
            self._waited,
            [] if self._gpus_in > 0 else _busy(uses or {}, wall),
        )
        self._gpus_in = (GPU_LOOKS if sample.busy else self._gpus_in) - 1
        self._moved.clear()
        self._waited = []
        self._take(sample)
        return sample

    def _take(self, sample: Sample) -> None:
        self._points.append(sample.point)
        self._happenings.extend(sample.happenings)
        self._delays.extend(sample.delays)
        if sample.busy:
            self._gpus.append(sample.busy)

    def newest(self, waiting: int) -> list[Point]:
        """Return the cluster as it was at the last look, with who waits now; nothing before the first."""
        return [msgspec.structs.replace(self._points[-1], waiting=waiting)] if self._points else []

    def tell(self) -> Past:
        """Return the past, in no more points than a chart can show."""
        points = _thinned(self._points, POINTS_TOLD_MAX)
        busy = [one for looked in _thinned(self._gpus, GPU_POINTS_TOLD_MAX) for one in looked]
        delays = [*self._delays, *self._waited][-DELAYS_MAX:]
        return Past(points, list(self._happenings), delays, busy)


def _busy(uses: Mapping[str, Mapping[str, GpuUse]], wall: float) -> list[Busy]:
    named = [(f"{host}/{use.uuid}", use) for host, gpus in sorted(uses.items()) for use in gpus.values()]
    return [Busy(wall, name, round(use.utilisation, 3), use.memory_used_gb) for name, use in named[:GPUS_MAX]]


def _thinned(kept: deque[T], most: int) -> list[T]:
    """Return every one, every second one, …, the newest among them: `most` at most."""
    step = -(-len(kept) // most) or 1
    return list(kept)[::-1][::step][::-1]
