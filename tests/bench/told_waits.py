"""How near the told waits come to the truth: recorded days played on the core, with the foresight beside it.

Each wait is told once, when it begins, as live; near is within a factor of 1.5. `said`: the same where each
cell had said how long it takes, which is what is to be had at most without knowing who comes later. `knew`:
the same where all durations of each notebook that day are known beforehand, but not which comes when. That is
what whoever learns how long notebooks' cells take can come to at most. `held`: how many waits end within the
range that is told.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from random import Random
from statistics import median
from typing import Any

import msgspec
from replkernel_scheduler.effects import LeaseGranted, LeaseQueued
from replkernel_scheduler.events import LeaseAsked
from replkernel_scheduler.expecting.durations import Draws, Durations, Kind
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


class Known(Durations):
    """Durations that are known beforehand: those of each session, and of all."""

    def __init__(self, lasts: Iterable[tuple[str, float]]) -> None:
        super().__init__()
        self._of: dict[str, list[float]] = {}
        for session, lasts_s in lasts:
            self._of.setdefault(session, []).append(lasts_s)
        self._every = sorted([one for those in self._of.values() for one in those])
        for those in self._of.values():
            those.sort()

    def draws_for(self, kinds: tuple[Kind, ...], expected_s: float, passed_s: float = 0.0) -> Draws:
        for ordered in (self._of.get(str(kinds[0][1]), []), self._every):
            begin = bisect_right(ordered, passed_s)
            if begin < len(ordered):
                return Draws([(1.0, ordered, begin)], passed_s)
        return Draws([], passed_s)


class Listening:
    """The core, and what is told of it; `lasts` is how long each session's cells take, where that is said."""

    def __init__(self, core: Any, lasts: dict[tuple[str, int], float] | None) -> None:
        self.core, self._lasts = core, lasts
        self.foresight = Foresight(Random(0), again_s=inf)
        self.looks, self.cpu_s = 0, 0.0
        self.waits: list[tuple[float, float | None, float | None]] = []
        """Of each that waited: for how long, what the foresight had told, what the core guesses."""
        self.ranges: list[tuple[float, tuple[float, float]]] = []
        """Of each that was told one: for how long, and the range."""
        self._open: dict[str, list[float | None]] = {}
        self._ranges: dict[str, tuple[float, float]] = {}
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
                        if one.range_s is not None:
                            self._ranges[one.request] = one.range_s
                break
        self.looks += 1
        self.cpu_s += time.process_time() - began

    def _over(self, request: str, now: float) -> None:
        entry, range_s = self._open.pop(request, None), self._ranges.pop(request, None)
        if entry is not None and entry[0] is not None and now - entry[0] >= WAITED_MIN_S:
            since = entry[0] if entry[1] is None else entry[1]
            self.waits.append((max(1.0, now - since), entry[2], entry[3]))
            if range_s is not None:
                self.ranges.append((max(1.0, now - since), range_s))


def near(pairs: Sequence[tuple[float, float | None]]) -> float:
    """Return the share of waits that were told within the factor; one that nobody told was not."""
    good = [1 for truth, told in pairs if told and max(truth / told, told / truth) <= FACTOR]
    return len(good) / max(1, len(pairs))


def held(ranges: Sequence[tuple[float, tuple[float, float]]]) -> float:
    """Return the share of waits that ended within the range that was told."""
    return len([1 for truth, (least, most) in ranges if least <= truth <= most]) / max(1, len(ranges))


def played(name: str, *, said: bool = False, knew: bool = False) -> Listening:
    """Play a day, where each cell `said` how long it takes, or the durations of each notebook are known."""
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
        if knew:
            core.foresight.durations = Known([(session, lasts_s) for (session, _), lasts_s in lasts.items()])
        Simulation(records, spool.first + day * DAY_S, way, plan, core=core).run()
    return core


def measure() -> Result:
    """Play all days; the samples are the shares of waits that were told nearly right."""
    found = {name: of_day(name) for name in DAYS}
    goal = "80 % within a factor of 1.5"
    return Result(
        "told_waits", "share of waits", [day["near"] for day in found.values()], [0.8], goal, {"days": found}
    )


def of_day(name: str) -> dict[str, float]:
    """Play a day three times, and print what was told how nearly."""
    core, known, knew = played(name), played(name, said=True), played(name, knew=True)
    day = {
        "waits": len(core.waits),
        "near": near([(truth, told) for truth, told, _ in core.waits]),
        "guess": near([(truth, core_s) for truth, _, core_s in core.waits]),
        "knew": near([(truth, told) for truth, told, _ in knew.waits]),
        "said": near([(truth, told) for truth, told, _ in known.waits]),
        "held": held(core.ranges),
        "width": median([most / least for _, (least, most) in core.ranges]),
        "ms": 1e3 * core.cpu_s / max(1, core.looks),
    }
    print(
        f"{name}: {day['waits']} waits, near {day['near']:.0%} (the core's own guess {day['guess']:.0%}; had "
        f"each notebook's durations been known {day['knew']:.0%}, had each cell said its own "
        f"{day['said']:.0%}); {day['held']:.0%} within the range, whose ends are x{day['width']:.1f} apart "
        f"(median); a look took {day['ms']:.1f} ms"
    )
    return day
