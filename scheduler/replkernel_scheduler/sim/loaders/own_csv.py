"""The simulator's own form: a CSV file of cells or of jobs, as the README beside describes it.

Cells: `session,start_s,duration_s,num_gpu`, and `session_start_s`, `session_end_s`, `user` if known. Jobs:
`job,arrival_s,duration_s,gpus`, and `nodes`, `requested_s`, `memory_gb`, `user`, `queue`, `state`,
`seconds_with`, `gpu_model` (`V100|A100`: either), `cpus`, `host_memory_gb`, `type` if known. Either:
`gpu_milli`, of who wants a part of one GPU. Law: columns are found by name, others are ignored. Cells may
stand in any order; the file is read twice, for a session is told of before its cells, and at most
SESSIONS_MAX sessions are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from replkernel_scheduler.sim.csv_rows import header_of, rows
from replkernel_scheduler.sim.errors import SimulationError, TraceUnreadable
from replkernel_scheduler.sim.records import AHEAD_S, Cell, Job, Record, Session
from replkernel_scheduler.sim.trace_file import TraceFile, number, whole

CELLS = frozenset({"session", "start_s", "duration_s", "num_gpu"})
JOBS = frozenset({"job", "arrival_s", "duration_s", "gpus"})
KNOWN = CELLS | JOBS | {
    "session_start_s", "session_end_s", "user", "nodes", "requested_s", "memory_gb", "queue", "state",
    "seconds_with", "gpu_milli", "gpu_model", "cpus", "host_memory_gb", "type",
}  # fmt: skip
COLUMNS = "a CSV file with the columns session,start_s,duration_s,num_gpu or job,arrival_s,duration_s,gpus"
SESSIONS_MAX = 200_000
COUNT_MAX = 64


def looks_like(header: list[str]) -> bool:
    """Say whether a header is that of this form."""
    return set(header) >= CELLS or set(header) >= JOBS


def nearly(header: list[str], named: bool = False) -> str:
    """Say what keeps a header from being of this form, if it is one nearly; "" if it is none at all.

    Where the user has `named` columns, it is meant to be one.
    """
    if named:
        wanted = min((JOBS, CELLS), key=lambda form: len(form - set(header)))
        lacks = ", ".join(sorted(wanted - set(header)))
        return f"with --columns it still lacks {lacks}; name them too (# is the number of the line)"
    if len(header) == 1:
        for sign, name in ((";", "semicolons"), ("\t", "tabs")):
            if looks_like([cell.strip() for cell in header[0].split(sign)]):
                return f"its columns are separated by {name}; write commas"
        return ""
    small = [name.lower() for name in header]
    for wanted in (CELLS, JOBS):
        missing = [name for name in sorted(wanted) if name not in header]
        if len(missing) < len(wanted) / 2 or wanted <= set(small):
            return f"its header lacks {', '.join(missing)} of {COLUMNS}"
    return ""


def checked_columns(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return what columns are called in a file; raise SimulationError for one that this form has not."""
    made = tuple(pairs)
    for ours, theirs in made:
        if ours not in KNOWN or not theirs:
            raise SimulationError(
                f"{ours}={theirs} names no column of ours: there are {', '.join(sorted(KNOWN))}."
            )
    return made


def records(file: TraceFile) -> Iterator[Record]:
    """Yield all sessions and then the cells, or the jobs."""
    header = header_of(file)
    if set(header) >= JOBS:
        for row in rows(file, header):
            job = file.take(partial(_job, row))
            if job is not None:
                yield job
        return
    yield from _sessions(file, header)
    for row in rows(file, header):
        cell = file.take(partial(_cell, row))
        if cell is not None:
            yield cell


def _sessions(file: TraceFile, header: list[str]) -> Iterator[Session]:
    """Read the file once for the bounds of its sessions; bad rows are told of when cells are read."""
    first = TraceFile(file.path, skip_bad=True, columns=file.columns)
    found: dict[str, Session] = {}
    for row in rows(first, header):
        cell = first.take(partial(_cell, row))
        if cell is None:
            continue
        begins, ends, user = cell.at - AHEAD_S, cell.at + cell.duration_s, row.get("user", "")
        if row.get("session_start_s"):
            begins = min(cell.at, _number_or(row["session_start_s"], begins))
        if row.get("session_end_s"):
            ends = max(ends, _number_or(row["session_end_s"], ends))
        known = found.get(cell.session)
        if known is None and len(found) == SESSIONS_MAX:
            raise TraceUnreadable(f"{file.path} has more than {SESSIONS_MAX} sessions: split it by time.")
        gpus = cell.gpus
        if known is not None:
            begins, ends, gpus = min(begins, known.at), max(ends, known.ends), max(gpus, known.gpus)
        found[cell.session] = Session(cell.session, begins, ends, gpus, user)
    yield from found.values()


def _number_or(text: str, other: float) -> float:
    """Return the number, or `other` where it is none: that row is told of when its cell is read."""
    try:
        return number(text, "")
    except ValueError:
        return other


def _cell(row: dict[str, str]) -> Cell | None:
    for name in ("session_start_s", "session_end_s"):
        if row.get(name):
            number(row[name], name)
    if not row["session"]:
        raise ValueError("session is empty")
    duration_s = number(row["duration_s"], "duration_s")
    at, gpus = number(row["start_s"], "start_s"), whole(row["num_gpu"], "num_gpu")
    cell = Cell(row["session"], at, duration_s, gpus, milli=_milli(row, gpus))
    return cell if duration_s else None


def _milli(row: dict[str, str], gpus: int) -> int:
    """Return the part of its one GPU that a row wants in thousandths; 0: all of it."""
    milli = whole(row.get("gpu_milli") or "0", "gpu_milli")
    return milli if gpus == 1 and milli < 1000 else 0


def _job(row: dict[str, str]) -> Job | None:
    if not row["job"]:
        raise ValueError("job is empty")
    gpus, duration_s = whole(row["gpus"], "gpus"), number(row["duration_s"], "duration_s")
    if not gpus or not duration_s:
        return None
    return Job(
        row["job"],
        number(row["arrival_s"], "arrival_s"),
        duration_s,
        gpus,
        nodes=whole(row.get("nodes") or "0", "nodes"),
        requested_s=number(row.get("requested_s") or "0", "requested_s"),
        memory_gb=number(row.get("memory_gb") or "0", "memory_gb"),
        user=row.get("user", ""),
        queue=row.get("queue", ""),
        state=row.get("state", ""),
        seconds_with=_seconds_with(row.get("seconds_with") or ""),
        milli=_milli(row, gpus),
        gpu_models=tuple(model.strip() for model in (row.get("gpu_model") or "").split("|") if model.strip()),
        cpus=number(row.get("cpus") or "0", "cpus"),
        host_memory_gb=number(row.get("host_memory_gb") or "0", "host_memory_gb"),
        kind=row.get("type", ""),
    )


def _seconds_with(text: str) -> tuple[tuple[int, float], ...]:
    """Return what `2=442.5 4=429` says: seconds with 2 GPUs, and with 4."""
    found: dict[int, float] = {}
    for pair in text.split():
        gpus, sign, seconds = pair.partition("=")
        count, took = whole(gpus, "the GPUs in seconds_with"), number(seconds, "seconds_with")
        if not sign or not 0 < count <= COUNT_MAX or not took or count in found:
            raise ValueError(f"seconds_with has {pair[:40]!r}, where GPUS=SECONDS is wanted, each GPUS once")
        found[count] = took
    return tuple(sorted(found.items()))
