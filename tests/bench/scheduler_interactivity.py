"""How long cells wait for GPUs in a recorded cluster: 17.5 hours of training sessions, played in a second.

The trace has cells (session, start, duration, GPUs); a session is a kernel that starts shortly before its
first cell. The core runs on the trace's own clock, on 30 hosts of 8 GPUs, three ways side by side: `moving`
places replicas and moves them when their hosts are full, a move taking MOVE_S; `staying` is what the live
service does: replicas are where they were put, and a cell waits; `reserved` holds GPUs for whole sessions.
Law: nothing but the clock is made up; a cell that would begin while its session's last one runs waits.
"""

from __future__ import annotations

import csv
import heapq
import itertools
import os
import random
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect, LeaseGranted, LeaseRefused, ReclaimLease, StartReplica
from replkernel_scheduler.events import (
    ARRIVES,
    Event,
    HostUp,
    KernelEnded,
    KernelReported,
    KernelStarted,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    ReplicaReady,
    TimeReached,
)
from replkernel_scheduler.policies.built_in import notebook, reservation
from replkernel_scheduler.types import Gpu, GpuUuid, HostName, KernelId, KernelSpec, LeaseRequest, RequestId

from tests.bench.report import Result, quantile

TRACES = "REPLKERNEL_TRACES"
TRACE = "adobe_sensei/adobe_17h5_reconstructed.csv"
HOSTS, GPUS = 30, 8
REPLICAS = {"moving": 3, "staying": 3, "reserved": 1}
LEASE_S = 604_800.0
"""A cell's process is there for as long as it runs: nothing expires."""
MOVE_S = 10.0
"""Starting a replica elsewhere, its state included."""
AHEAD_S = 60.0
"""A kernel is started so long before its first cell."""
IMMEDIATE_S = 1e-6


class Cell(NamedTuple):
    """One cell of the trace; times in seconds."""

    session: str
    start: float
    duration: float
    gpus: int


def cells_of_trace() -> list[Cell]:
    """Return the trace's cells by their start; raises FileNotFoundError that says where it is looked for."""
    place = Path(os.environ.get(TRACES) or Path(__file__).parents[3] / "shared" / "traces") / TRACE
    if not place.is_file():
        raise FileNotFoundError(f"{place} is not there: set {TRACES} to the directory of the traces")
    with place.open(newline="") as lines:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        cells = [
            Cell(row["session"], float(row["start_s"]), float(row["duration_s"]), int(row["num_gpu"]))
            for row in rows
        ]
    return sorted(cells, key=lambda cell: (cell.start, cell.session))


class _Next(NamedTuple):
    """A session's cell is over, and its next one may ask."""

    session: str


class Play:
    """The trace on one core, on the trace's clock."""

    def __init__(self, way: str, cells: list[Cell]) -> None:
        """Have the hosts up, and everything that the trace says queued."""
        self._way = way
        policies = reservation() if way == "reserved" else notebook()
        self._core = SchedulerCore(random.Random(1), policies)
        self._dice = random.Random(2)
        self._queue: list[tuple[float, int, int, Any]] = []
        self._number = itertools.count()
        self._waiting: dict[str, deque[Cell]] = {}
        self._asked: dict[str, tuple[Cell, float]] = {}
        self.delays: list[float] = []
        self.decisions_ms: list[float] = []
        self.moves = self.refused = self.unserved = 0
        self.used_s = sum(cell.duration * cell.gpus for cell in cells)
        self.reserved_s = 0.0
        for number in range(HOSTS):
            gpus = tuple(Gpu(GpuUuid(f"GPU-{number:02}-{gpu}"), "A100", 40.0) for gpu in range(GPUS))
            self._feed(HostUp(HostName(f"host-{number:02}"), gpus), 0.0)
        by_session: dict[str, list[Cell]] = {}
        for cell in cells:
            by_session.setdefault(cell.session, []).append(cell)
            self._plan(AHEAD_S + cell.start, cell)
        self._left = {session: len(own) for session, own in by_session.items()}
        for session, own in by_session.items():
            self._begin(session, own)

    def _begin(self, session: str, cells: list[Cell]) -> None:
        gpus = max(cell.gpus for cell in cells)
        begins = AHEAD_S + cells[0].start - AHEAD_S / 2
        ends = AHEAD_S + max(cell.start + cell.duration for cell in cells)
        self.reserved_s += gpus * (ends - begins)
        spec = KernelSpec(KernelId(session), gpus=gpus, replicas=REPLICAS[self._way])
        if self._way == "staying":
            names = self._dice.sample(range(HOSTS), spec.replicas)
            self._plan(begins, KernelReported(spec, tuple(HostName(f"host-{name:02}") for name in names)))
        else:
            self._plan(begins, KernelStarted(spec))

    def run(self) -> None:
        """Play to the end."""
        while self._queue:
            due, timer = self._queue[0][0], self._core.deadline()
            if timer is not None and timer <= due:
                self._feed(TimeReached(), timer)
                continue
            now, _, _, what = heapq.heappop(self._queue)
            if isinstance(what, Cell):
                self._arrive(what, now)
            elif isinstance(what, _Next):
                self._go_on(what.session, now)
            else:
                self._feed(what, now)
        self.unserved = len(self._asked)

    def _plan(self, at: float, what: Event | Cell | _Next) -> None:
        turn = ARRIVES if isinstance(what, Cell | _Next) else what.turn
        heapq.heappush(self._queue, (at, turn, next(self._number), what))

    def _arrive(self, cell: Cell, now: float) -> None:
        """Have a cell ask for its GPUs, after those of its session that are before it."""
        behind = self._waiting.setdefault(cell.session, deque())
        behind.append(cell)
        if len(behind) == 1:
            self._ask(cell, now)

    def _go_on(self, session: str, now: float) -> None:
        """Have a session's next cell ask, or end the session's kernel."""
        behind = self._waiting[session]
        behind.popleft()
        self._left[session] -= 1
        if behind:
            self._ask(behind[0], now)
        elif not self._left[session]:
            self._feed(KernelEnded(KernelId(session)), now)

    def _ask(self, cell: Cell, now: float) -> None:
        request = RequestId(f"{cell.session}:{cell.start:g}:{next(self._number)}")
        self._asked[request] = (cell, now)
        self._feed(LeaseAsked(LeaseRequest(request, KernelId(cell.session), cell.gpus, LEASE_S)), now)

    def _feed(self, event: Event, now: float) -> None:
        began = time.perf_counter()
        effects = self._core.handle(event, now)
        self.decisions_ms.append((time.perf_counter() - began) * 1e3)
        for effect in effects:
            self._follow(effect, now)

    def _follow(self, effect: Effect, now: float) -> None:
        match effect:
            case LeaseGranted() if effect.lease.request in self._asked:
                cell, asked = self._asked.pop(effect.lease.request)
                self.delays.append(now - asked)
                lease, ends = effect.lease, now + cell.duration
                self._plan(ends, LeaseLingered(lease.lease, lease.fence, cell.duration))
                self._plan(ends, _Next(cell.session))
            case LeaseRefused() if effect.request in self._asked:
                self.refused += 1
                self._plan(now, _Next(self._asked.pop(effect.request)[0].session))
            case ReclaimLease():
                self._plan(now, LeaseReleased(effect.lease.lease, effect.lease.fence))
            case StartReplica():
                self.moves += 1
                self._plan(now + MOVE_S, ReplicaReady(effect.migration))
            case _:
                pass


def measure() -> Result:
    """Play the trace in each way; the samples are the delays of `moving`, those of `reserved` beside them."""
    cells = cells_of_trace()
    plays = {way: Play(way, cells) for way in REPLICAS}
    for play in plays.values():
        play.run()
    details = {way: _story(play, len(cells)) for way, play in plays.items()}
    for way, story in details.items():
        print(_line(way, story))
    goal = "most cells have their GPUs at once, at a fraction of the GPU-hours that sessions would hold"
    return Result(
        "scheduler_interactivity", "s", plays["moving"].delays, plays["reserved"].delays, goal, dict(details)
    )


def _story(play: Play, cells: int) -> dict[str, Any]:
    delays = play.delays
    return {
        "immediate": sum(delay <= IMMEDIATE_S for delay in delays) / cells,
        "delay_s": {f"p{percent}": quantile(delays, percent) for percent in (50, 95, 99)},
        "delay_max_s": max(delays),
        "cells": len(delays),
        "refused": play.refused,
        "unserved": play.unserved,
        "migrations": play.moves,
        "gpu_hours_used": play.used_s / 3600,
        "gpu_hours_reserved": play.reserved_s / 3600,
        "gpu_hours_saved": (play.reserved_s - play.used_s) / 3600,
        "decision_ms": {f"p{percent}": quantile(play.decisions_ms, percent) for percent in (50, 99)},
    }


def _line(way: str, story: dict[str, Any]) -> str:
    delay = story["delay_s"]
    return (
        f"{way:9} {story['immediate']:6.1%} at once; delay p50 {delay['p50']:.3g}, p95 {delay['p95']:.3g}, "
        f"p99 {delay['p99']:.3g} s; {story['migrations']} moves; {story['gpu_hours_used']:.0f} of "
        f"{story['gpu_hours_reserved']:.0f} GPU-hours computed, the rest is saved unless reserved"
    )
