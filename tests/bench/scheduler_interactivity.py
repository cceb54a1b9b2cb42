"""How long cells wait for GPUs in a recorded cluster: 17.5 hours of training sessions, played in a second.

The simulator plays the trace on 30 hosts of 8 GPUs, three ways side by side: `moving` places replicas and
moves them when their hosts are full, a move taking MOVE_S; `staying` is what the live service does: replicas
are where they were put, and a cell waits; `reserved` holds GPUs for whole sessions.
Law: nothing else takes time, so what is left is waiting for GPUs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.events import Event
from replkernel_scheduler.policies.built_in import notebook, reservation
from replkernel_scheduler.sim import forms, summary
from replkernel_scheduler.sim.costs import FREE, Normal
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.simulation import Simulation, core_for
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.task import Outcome, Task
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.way import Way

from tests.bench.report import Result, quantile

TRACES = "REPLKERNEL_TRACES"
TRACE = "adobe_sensei/adobe_17h5_reconstructed.csv"
MOVE_S = 10.0
"""Starting a replica elsewhere, its state included."""
PLAN = Plan(hosts=30, gpus_per_host=8, seed=1, costs=msgspec.structs.replace(FREE, start_cold=Normal(MOVE_S)))
WAYS = (
    Way("moving", notebook(), "placed", 3, lingers=True),
    Way("staying", notebook(), "reported", 3, lingers=True),
    Way("reserved", reservation(), "placed", 1, lingers=True),
)


class Timed:
    """A core whose decisions are timed."""

    def __init__(self, core: SchedulerCore) -> None:
        """Time `core`."""
        self._core = core
        self.decisions_ms: list[float] = []
        self.deadline = core.deadline

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Pass an event on."""
        began = time.perf_counter()
        effects = self._core.handle(event, now)
        self.decisions_ms.append((time.perf_counter() - began) * 1e3)
        return effects


def trace_file() -> TraceFile:
    """Return the trace; raise FileNotFoundError that says where it is looked for."""
    place = Path(os.environ.get(TRACES) or Path(__file__).parents[3] / "shared" / "traces") / TRACE
    if not place.is_file():
        raise FileNotFoundError(f"{place} is not there: set {TRACES} to the directory of the traces")
    return TraceFile(place)


def measure() -> Result:
    """Play the trace in each way; the samples are the waits of `moving`, those of `reserved` beside them."""
    waits: dict[str, list[float]] = {}
    stories: dict[str, Any] = {}
    with Spool(forms.read(trace_file())) as spool:
        for way in WAYS:
            waits[way.name], stories[way.name] = _play(spool, way)
            print(_line(way.name, stories[way.name]))
    goal = "most cells have their GPUs at once, at a fraction of the GPU-hours that sessions would hold"
    return Result("scheduler_interactivity", "s", waits["moving"], waits["reserved"], goal, stories)


def _play(spool: Spool, way: Way) -> tuple[list[float], dict[str, Any]]:
    waits: list[float] = []

    def row(task: Task, outcome: Outcome) -> None:
        if outcome == "done":
            waits.append(task.bound - task.submitted)

    core = Timed(core_for(way, PLAN))
    simulation = Simulation(spool, spool.first, way, PLAN, core=core, rows=row)
    figures = simulation.run()
    run = summary.of_run(figures, simulation.now, simulation.events, way, PLAN)
    held = run.cluster.reserved_gpu_hours or run.cluster.committed_gpu_hours
    return waits, {
        "immediate": run.cells.immediate,
        "delay_s": {f"p{percent}": quantile(waits, percent) for percent in (50, 95, 99)},
        "delay_max_s": max(waits),
        "cells": len(waits),
        "not_served": run.not_served,
        "migrations": run.changes.migrations,
        "gpu_hours_computed": spool.work_gpu_s / 3600,
        "gpu_hours_held": held,
        "decision_ms": {f"p{percent}": quantile(core.decisions_ms, percent) for percent in (50, 99)},
    }


def _line(way: str, story: dict[str, Any]) -> str:
    delay = story["delay_s"]
    return (
        f"{way:9} {story['immediate']:6.1%} at once; wait p50 {delay['p50']:.3g}, p95 {delay['p95']:.3g}, "
        f"p99 {delay['p99']:.3g} s; {story['migrations']} moves; {story['gpu_hours_computed']:.0f} GPU-hours "
        f"computed, {story['gpu_hours_held']:.0f} held"
    )
