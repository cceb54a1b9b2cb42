"""A made workload as a file of our own CSV form, with what it was made from and what came of it.

Law: the file says by itself what it is: two comment lines have the plan and the achieved statistics as JSON.
The same plan and seed give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from replkernel_scheduler.sim.errors import SimulationError, TraceUnreadable
from replkernel_scheduler.sim.level import Level
from replkernel_scheduler.sim.records import Cell, Record, Session
from replkernel_scheduler.sim.summary import Spread, spread
from replkernel_scheduler.sim.trace_file import TraceFile, packed
from replkernel_scheduler.sim.workload import HOUR_S, WorkloadPlan, workload

DRAWS_MAX = 50
OFF_MOST = 0.1
"""A draw whose mean of active cells is further off than this is drawn anew."""
HARDLY = 0.05
MADE_BY = "# made by replkernel workload"
UNFINISHED = ".unfinished"
COLUMNS = "session,session_start_s,session_end_s,start_s,duration_s,num_gpu"


class Achieved(msgspec.Struct, frozen=True):
    """What a workload has; `draws` is how many were made until one had the wanted mean of active cells."""

    seed: int
    draws: int
    sessions: int
    sessions_open_max: int
    sessions_open_last: int
    cells: int
    active_mean: float
    active_max: int
    gpu_hours: float
    duration_s: Spread | None
    between_s: Spread | None
    between_least_s: float | None
    training_hardly: float | None
    """The share of sessions that train for up to 5 % of their lives."""
    gpus: dict[str, float]
    """The share of sessions by the GPUs that they want."""


def made(
    plan: WorkloadPlan,
    seed: int,
    active_mean: float | None,
    watched: Callable[[Iterator[Record]], Iterator[Record]] = iter,
) -> tuple[list[Record], Achieved]:
    """Return a workload and its statistics; raise SimulationError if no draw has the wanted mean.

    `watched` sees the records of each draw go by.
    """
    found = []
    for draw in range(DRAWS_MAX):
        records = list(watched(workload(plan, seed + draw * 1_000_003)))
        achieved = achieved_by(records, plan, seed, draw + 1)
        if active_mean is None or abs(achieved.active_mean - active_mean) <= OFF_MOST * active_mean:
            return records, achieved
        found.append(achieved.active_mean)
    raise SimulationError(
        f"None of {DRAWS_MAX} draws has {active_mean:g} cells active in the mean ({min(found):.1f} to "
        f"{max(found):.1f}): give another --active-mean (0: any), other --sessions, --duty or --idle-share."
    )


def achieved_by(records: Sequence[Record], plan: WorkloadPlan, seed: int, draws: int) -> Achieved:
    """Return the statistics of a workload."""
    sessions = [record for record in records if isinstance(record, Session)]
    cells = [record for record in records if isinstance(record, Cell)]
    gaps, busy_s, before = (
        [],
        dict.fromkeys([session.session for session in sessions], 0.0),
        dict[str, float](),
    )
    for cell in cells:
        if cell.session in before:
            gaps.append(cell.at - before[cell.session])
        before[cell.session] = cell.at
        busy_s[cell.session] += cell.duration_s
    opened = _level([(session.at, session.ends) for session in sessions])
    active = _level([(cell.at, cell.at + cell.duration_s) for cell in cells])
    over = plan.hours * HOUR_S
    hardly = [busy_s[session.session] <= HARDLY * (session.ends - session.at) for session in sessions]
    return Achieved(
        seed=seed,
        draws=draws,
        sessions=len(sessions),
        sessions_open_max=int(opened.peak),
        sessions_open_last=sum(session.ends >= over for session in sessions),
        cells=len(cells),
        active_mean=active.until(over) / over,
        active_max=int(active.peak),
        gpu_hours=sum(cell.gpus * cell.duration_s for cell in cells) / HOUR_S,
        duration_s=spread([cell.duration_s for cell in cells]),
        between_s=spread(gaps),
        between_least_s=min(gaps, default=None),
        training_hardly=sum(hardly) / len(hardly) if hardly else None,
        gpus={
            str(count): sum(session.gpus == count for session in sessions) / len(sessions)
            for count in sorted({session.gpus for session in sessions})
        },
    )


def _level(spans: Sequence[tuple[float, float]]) -> Level:
    """Return how many of the spans there are at a time; what ends goes before what begins."""
    level = Level()
    changes = [(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]
    for at, delta in sorted(changes):
        level.add(delta, at)
    return level


def write(path: Path, text: Iterable[str]) -> None:
    """Write lines, packed as the ending says; a file that is there stays as it was until all is written."""
    beside = path.with_name(path.name + UNFINISHED) if path.is_file() or not path.exists() else path
    try:
        with packed(beside, path.suffix) as raw, io.TextIOWrapper(raw, "utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in text)
        if beside != path:
            beside.replace(path)
    except BaseException:
        if beside != path:
            beside.unlink(missing_ok=True)
        raise


def spare(path: Path) -> None:
    """Raise SimulationError if there is a file that this command has not made."""
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        line = TraceFile(path).first_line()
    except TraceUnreadable:
        line = ""
    if not line.startswith(MADE_BY):
        raise SimulationError(
            f"{path} is there, and no workload that this command made: choose another name."
        )


def lines(records: Sequence[Record], plan: WorkloadPlan, achieved: Achieved) -> Iterator[str]:
    """Yield the lines of the file; cells come in order of time."""
    yield f"{MADE_BY} from {msgspec.json.encode(plan).decode()}"
    yield f"# achieved {msgspec.json.encode(achieved).decode()}"
    yield COLUMNS
    sessions = {record.session: record for record in records if isinstance(record, Session)}
    for cell in sorted([record for record in records if isinstance(record, Cell)], key=lambda cell: cell.at):
        session = sessions[cell.session]
        times = f"{session.at:.3f},{session.ends:.3f},{cell.at:.3f},{cell.duration_s:.3f}"
        yield f"{cell.session},{times},{cell.gpus}"
