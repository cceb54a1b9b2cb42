"""How near the told waits come to the truth: recorded days played on the core, with the foresight beside it.

Each wait is told once, when it begins, as live; near is within a factor of 1.5. `said`: the same where each
cell had said how long it takes, which is what is to be had at most without knowing who comes later.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from random import Random
from typing import Any

import msgspec
from replkernel_scheduler.effects import LeaseGranted, LeaseQueued
from replkernel_scheduler.events import LeaseAsked
from replkernel_scheduler.expecting.forecast import FACTOR
from replkernel_scheduler.expecting.foresight import Foresight
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Cell, Record
from replkernel_scheduler.sim.simulation import Simulation, core_for
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.way import way_named
from replkernel_scheduler.sim.window import Window

from tests.bench.report import Result
from tests.paper.traces import trace

DAY_S = 86_400.0
WAITED_MIN_S = 10.0
DAYS = {
    "Adobe's 17.5 h on 4 hosts": ("adobe_sensei/adobe_17h5_reconstructed.csv", 4, 0),
    "Adobe's 17.5 h on 6 hosts": ("adobe_sensei/adobe_17h5_reconstructed.csv", 6, 0),
    "a day of June 2021 on 12 hosts": ("adobe_sensei/sensei_june_60sec.csv", 12, 10),
}


class Listening:
    """The core, and what is told of it; `lasts` is how long each session's cells take, where that is said."""

    def __init__(self, core: Any, lasts: dict[tuple[str, int], float] | None) -> None:
        self.core, self._lasts = core, lasts
        self.foresight = Foresight(Random(0), again_s=inf)
        self.looks, self.cpu_s = 0, 0.0
        self.waits: list[tuple[float, float | None, float | None]] = []
        """Of each that waited: for how long, what the foresight had told, what the core guesses."""
        self._open: dict[str, list[float | None]] = {}
        self._cells: dict[str, int] = {}

    def deadline(self) -> float | None:
        return self.core.deadline()  # type: ignore[no-any-return]

    def handle(self, event: Any, now: float) -> Sequence[HarvestEffect]:
        due = self.foresight.due()
        if due is not None and due <= now:
            self._look(due)
        if self._lasts is not None and isinstance(event, LeaseAsked):
            wish = event.request
            self._cells[wish.kernel_id] = number = self._cells.get(wish.kernel_id, -1) + 1
            said_s = self._lasts.get((wish.kernel_id, number), 0.0)
            event = LeaseAsked(msgspec.structs.replace(wish, expected_s=said_s))
        effects: Sequence[HarvestEffect] = self.core.handle(event, now)
        for effect in effects:
            if isinstance(effect, LeaseQueued):
                if effect.position and effect.request not in self._open:
                    self._open[effect.request] = [now, None, None, effect.estimate_s]
                elif not effect.position:
                    self._over(effect.request, now)
            elif isinstance(effect, LeaseGranted):
                self._over(effect.lease.request, now)
        self.foresight.saw(effects, now)
        return effects

    def _look(self, now: float) -> None:
        began = time.process_time()
        looking = self.foresight.look(self.core, now)
        while True:
            try:
                next(looking)
            except StopIteration as done:
                for one in done.value:
                    entry = self._open.get(one.request)
                    if entry is not None and entry[1] is None:
                        entry[1:3] = [now, one.wait_s]
                break
        self.looks += 1
        self.cpu_s += time.process_time() - began

    def _over(self, request: str, now: float) -> None:
        entry = self._open.pop(request, None)
        if entry is not None and entry[0] is not None and now - entry[0] >= WAITED_MIN_S:
            since = entry[0] if entry[1] is None else entry[1]
            self.waits.append((max(1.0, now - since), entry[2], entry[3]))


def near(pairs: Sequence[tuple[float, float | None]]) -> float:
    """Return the share of waits that were told within the factor; one that nobody told was not."""
    good = [1 for truth, told in pairs if told and max(truth / told, told / truth) <= FACTOR]
    return len(good) / max(1, len(pairs))


def played(name: str, *, said: bool) -> Listening:
    """Play a day."""
    file, hosts, day = DAYS[name]
    way, plan = way_named("notebook"), Plan(hosts=hosts, gpus_per_host=8)
    with Spool(forms.read(TraceFile(trace(file)))) as spool:
        window = Window(day * DAY_S, (day + 1) * DAY_S)
        records: list[Record] = list(window.of(spool, spool.first))
        lasts: dict[tuple[str, int], float] = {}
        cells: dict[str, int] = {}
        for record in records:
            if isinstance(record, Cell):
                number = cells[record.session] = cells.get(record.session, -1) + 1
                lasts[(record.session, number)] = record.duration_s
        core = Listening(core_for(way, plan), lasts if said else None)
        Simulation(records, spool.first + day * DAY_S, way, plan, core=core).run()
    return core


def measure() -> Result:
    """Play all days; the samples are the shares of waits that were told nearly right."""
    found, shares = {}, []
    for name in DAYS:
        core, known = played(name, said=False), played(name, said=True)
        share = near([(truth, told) for truth, told, _ in core.waits])
        guess = near([(truth, core_s) for truth, _, core_s in core.waits])
        most = near([(truth, told) for truth, told, _ in known.waits])
        look_ms = 1e3 * core.cpu_s / max(1, core.looks)
        print(
            f"{name}: {len(core.waits)} waits, near {share:.0%} (the core's own guess {guess:.0%}; "
            f"had cells said how long: {most:.0%}), {look_ms:.1f} ms a look"
        )
        found[name] = {"waits": len(core.waits), "near": share, "guess": guess, "said": most, "ms": look_ms}
        shares.append(share)
    goal = "80 % within a factor of 1.5"
    return Result("told_waits", "share of waits", shares, [0.8], goal, {"days": found})
