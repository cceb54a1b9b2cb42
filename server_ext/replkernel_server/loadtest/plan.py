"""What is to be played: which sessions are open when, and when they submit which cells. Pure.

Law: times are seconds of the test's own clock, from 0 to `lasts_s`; the same records and wishes make the same
plan. No more sessions than were asked for are open at a time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from replkernel_scheduler.sim.records import Cell, Record, Session
from replkernel_scheduler.sim.workload import WorkloadPlan, workload

from replkernel_server.loadtest.errors import LoadTestError

SESSIONS_MAX = 2_000
HOUR_S = 3600.0
BEFORE_H = 12.0
"""So much of the built-in pattern is over when the test begins, which is with a cell
(the last one before that, if none comes later) of a time at which all sessions are open."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for: `speed` seconds of the pattern pass in one of ours, for `lasts_s` of ours."""

    sessions: int
    lasts_s: float
    speed: float = 60.0
    begins_h: float | None = None
    """Where in a trace to begin, in hours; None: where it first has so many sessions open."""
    cell_max_s: float = 30.0
    """A cell that would run longer, after scaling, runs so long."""
    gpus_max: int = 0
    """A cell asks for the GPUs that its trace says, but for no more than these."""
    seed: int = 0


class PlannedCell(msgspec.Struct, frozen=True):
    """A cell that is due at `at_s`, computes (sleeps) for `runs_s`, on so many GPUs."""

    at_s: float
    runs_s: float
    gpus: int = 0


class PlannedSession(msgspec.Struct, frozen=True):
    """A notebook that is open from `opens_s` (0: from the beginning) to `closes_s`."""

    name: str
    opens_s: float
    closes_s: float
    cells: tuple[PlannedCell, ...]


class LoadPlan(msgspec.Struct, frozen=True):
    """All sessions in order of their opening."""

    sessions: tuple[PlannedSession, ...]
    lasts_s: float

    @property
    def cells(self) -> int:
        """Return how many cells there are."""
        return sum(len(session.cells) for session in self.sessions)


def built_in(wanted: Wanted) -> LoadPlan:
    """Return sessions of people who train models, from the quantiles that are published of them.

    It is a part out of a longer pattern, so that some are in the middle of their work and others rest.
    """
    hours = 2 * BEFORE_H + wanted.lasts_s * wanted.speed / HOUR_S
    pattern = WorkloadPlan(hours=hours, sessions=((0, wanted.sessions), (hours, wanted.sessions)))
    records = list(workload(pattern, wanted.seed))
    sessions, cells = _sorted_out(records)
    due = sorted(cell.at for those in cells.values() for cell in those)
    middle = bisect_left(due, BEFORE_H * HOUR_S)
    tried = [*due[middle:], *reversed(due[:middle])]
    full = (at for at in tried if _open_at(sessions, at) >= wanted.sessions)
    begins = next(full, tried[0] if tried else 0.0)
    return _part(sessions, cells, begins, wanted, resting=True)


def from_records(records: Iterable[Record], wanted: Wanted) -> LoadPlan:
    """Return the part of a trace that fits; raise LoadTestError if it has no cell there."""
    sessions, cells = _sorted_out(records)
    return _part(sessions, cells, _beginning(list(sessions.values()), wanted), wanted, resting=False)


def _part(
    sessions: dict[str, Session],
    cells: dict[str, list[Cell]],
    begins: float,
    wanted: Wanted,
    *,
    resting: bool,
) -> LoadPlan:
    """Return what is played from the second `begins` on.

    `resting`: sessions that submit nothing meanwhile are opened as well.
    """
    ends = begins + wanted.lasts_s * wanted.speed
    chosen: list[PlannedSession] = []
    open_until: list[float] = []
    for session in sorted(sessions.values(), key=lambda session: (session.at, session.session)):
        due = [cell for cell in cells[session.session] if begins <= cell.at < ends]
        if not due and not (resting and session.at < ends and session.ends > begins):
            continue
        opens = max(0.0, (session.at - begins) / wanted.speed)
        closes = min(wanted.lasts_s, (session.ends - begins) / wanted.speed)
        while open_until and open_until[0] <= opens:
            heapq.heappop(open_until)
        if len(open_until) == wanted.sessions:
            continue
        heapq.heappush(open_until, closes)
        planned = tuple(_planned(cell, begins, wanted) for cell in sorted(due, key=lambda cell: cell.at))
        chosen.append(PlannedSession(session.session, opens, closes, planned))
        if len(chosen) > SESSIONS_MAX:
            raise LoadTestError(f"These are more than {SESSIONS_MAX:,} sessions: ask for less time or speed.")
    if not any(session.cells for session in chosen):
        raise LoadTestError(
            f"No cell is in {wanted.lasts_s * wanted.speed / HOUR_S:.3g} hours of the pattern from hour "
            f"{begins / HOUR_S:.3g} on: give another --from, a longer --minutes or a higher --speed."
        )
    return LoadPlan(tuple(chosen), wanted.lasts_s)


def _open_at(sessions: dict[str, Session], at: float) -> int:
    return sum(session.at <= at < session.ends for session in sessions.values())


def _planned(cell: Cell, begins: float, wanted: Wanted) -> PlannedCell:
    runs_s = min(cell.duration_s / wanted.speed, wanted.cell_max_s)
    return PlannedCell((cell.at - begins) / wanted.speed, runs_s, min(cell.gpus, wanted.gpus_max))


def _sorted_out(records: Iterable[Record]) -> tuple[dict[str, Session], dict[str, list[Cell]]]:
    sessions: dict[str, Session] = {}
    cells: dict[str, list[Cell]] = defaultdict(list)
    for record in records:
        if isinstance(record, Session):
            sessions[record.session] = record
        elif isinstance(record, Cell):
            cells[record.session].append(record)
        else:
            raise LoadTestError(
                f"The trace has jobs ({record.job}), not cells of sessions: only sessions can be played "
                "on notebooks."
            )
    return sessions, cells


def _beginning(sessions: Sequence[Session], wanted: Wanted) -> float:
    """Return the first moment at which as many sessions are open as were asked for, or as many as ever."""
    if wanted.begins_h is not None:
        return wanted.begins_h * HOUR_S
    changes = [(session.at, 1) for session in sessions] + [(session.ends, -1) for session in sessions]
    most, when, count = 0, 0.0, 0
    for at, change in sorted(changes):
        count += change
        if count > most:
            most, when = count, at
        if most >= wanted.sessions:
            break
    return max(0.0, when)
