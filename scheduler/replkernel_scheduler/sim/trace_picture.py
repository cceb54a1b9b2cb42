"""What a trace looks like: how many sessions are open and how many cells or jobs run, and its distributions.

Law: it is of the trace alone. A cell begins when it comes and the one before it is over, a job when it comes,
so no policy is in it. The records are read once, in order of time.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable

import msgspec

from replkernel_scheduler.sim.history import History
from replkernel_scheduler.sim.level import Level
from replkernel_scheduler.sim.picture import quantiles
from replkernel_scheduler.sim.records import Cell, Record, Session


class TracePicture(msgspec.Struct, frozen=True):
    """Means by step of `step_s` up to the last record, and quantiles.

    `between_s` is from a cell to the next of its session, or from a job to the next; `think_s` from its end.
    `duty` is the share of its life for which a session computes, in percent.
    """

    step_s: float
    open: list[float]
    running: list[float]
    duration_s: list[float]
    between_s: list[float]
    think_s: list[float]
    duty: list[float]


class _Course:
    """How many there are: what begins comes in order of time, what ends is kept until then."""

    def __init__(self) -> None:
        self.level = Level(History())
        self._ends: list[float] = []

    def there(self, begins: float, ends: float) -> None:
        self.until(begins)
        self.level.add(1, begins)
        heapq.heappush(self._ends, ends)

    def until(self, at: float) -> None:
        while self._ends and self._ends[0] <= at:
            self.level.add(-1, heapq.heappop(self._ends))


def trace_picture(records: Iterable[Record], first: float) -> TracePicture:
    """Return it, of records that come in order of time from `first` on."""
    opened, queued = _Course(), list[tuple[float, float]]()
    running = _Course()
    ended: dict[str, float] = {}
    came: dict[str, float] = {}
    busy_s: dict[str, float] = {}
    life_s: dict[str, float] = {}
    durations, betweens, thinks = array("d"), array("d"), array("d")
    last = 0.0
    for record in records:
        at = last = record.at - first
        if isinstance(record, Session):
            opened.there(at, record.ends - first)
            life_s[record.session] = record.ends - record.at
            continue
        name = record.session if isinstance(record, Cell) else ""
        begins = max(at, ended.get(name, at)) if isinstance(record, Cell) else at
        if name in came:
            betweens.append(at - came[name])
            if isinstance(record, Cell):
                thinks.append(begins - ended[name])
        came[name], ended[name] = at, begins + record.duration_s
        busy_s[name] = busy_s.get(name, 0.0) + record.duration_s
        durations.append(record.duration_s)
        heapq.heappush(queued, (begins, ended[name]))
        while queued and queued[0][0] <= at:
            running.there(*heapq.heappop(queued))
    while queued and queued[0][0] <= last:
        running.there(*heapq.heappop(queued))
    for course in (opened, running):
        course.until(last)
    shares = [100 * min(1.0, busy_s.get(name, 0.0) / lived) for name, lived in life_s.items() if lived > 0]
    run_course, history = running.level.course(last), running.level.history
    assert history is not None, "A course keeps its history."
    return TracePicture(
        history.step_s,
        opened.level.course(last) if life_s else [],
        run_course,
        quantiles(durations),
        quantiles(betweens),
        quantiles(thinks),
        quantiles(shares),
    )
