"""A workload like a trace as a file of our own CSV form, for the command and for Python.

Law: the file says by itself what it is: two comment lines have the likeness and what came of it as JSON. No
name of the trace is in it. The same trace and seed give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from replkernel_scheduler.sim.likeness import JobsLike, SessionsLike, likeness
from replkernel_scheduler.sim.records import Cell, Job, Record, Session, order
from replkernel_scheduler.sim.resembling import Resemblance, resembling, traits_of
from replkernel_scheduler.sim.rows import Value, line
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import Spread
from replkernel_scheduler.sim.workload_file import MADE_BY

ALWAYS = frozenset(
    {
        "session",
        "session_start_s",
        "session_end_s",
        "start_s",
        "duration_s",
        "num_gpu",
        "job",
        "arrival_s",
        "gpus",
    }
)


class Alike(NamedTuple):
    """What was made, what it was made from, and how near it comes."""

    records: list[Record]
    like: SessionsLike | JobsLike
    resemblance: Resemblance


def alike(trace: Spool, seed: int, times: float = 1.0) -> Alike:
    """Return a workload like a trace; raise SimulationError if it cannot be told what that is like."""
    like = likeness(trace)
    records = sorted(resembling(like, seed, times), key=order)
    return Alike(records, like, Resemblance(seed, times, traits_of(trace), traits_of(records)))


def lines(made: Alike) -> Iterator[str]:
    """Yield the lines of the file; what nobody has is no column."""
    yield f"{MADE_BY} from {msgspec.json.encode(made.like).decode()}"
    yield f"# achieved {msgspec.json.encode(made.resemblance).decode()}"
    rows = _job_rows(made.records) if isinstance(made.like, JobsLike) else _cell_rows(made.records)
    used = [name for name in rows[0] if any(row[name] not in (None, "", 0) for row in rows)]
    wanted = [name for name in rows[0] if name in used or name in ALWAYS]
    yield ",".join(wanted)
    for row in rows:
        yield line(row[name] for name in wanted).rstrip("\n")


def _cell_rows(records: Sequence[Record]) -> list[dict[str, Value]]:
    sessions = {record.session: record for record in records if isinstance(record, Session)}
    return [
        {
            "session": cell.session,
            "session_start_s": round(sessions[cell.session].at, 3),
            "session_end_s": round(sessions[cell.session].ends, 3),
            "start_s": round(cell.at, 3),
            "duration_s": round(cell.duration_s, 3),
            "num_gpu": cell.gpus,
            "gpu_milli": cell.milli or None,
            "user": sessions[cell.session].user,
        }
        for cell in records
        if isinstance(cell, Cell)
    ]


def _job_rows(records: Sequence[Record]) -> list[dict[str, Value]]:
    return [
        {
            "job": job.job,
            "arrival_s": round(job.at, 3),
            "duration_s": round(job.duration_s, 3),
            "gpus": job.width,
            "gpu_milli": job.milli or None,
            "gpu_model": "|".join(job.gpu_models),
            "requested_s": round(job.requested_s, 3) or None,
            "user": job.user,
        }
        for job in records
        if isinstance(job, Job)
    ]


def told(resemblance: Resemblance) -> str:
    """Return what the trace has beside what was made, as a table."""
    one, other = resemblance.trace, resemblance.made
    rows = [("", "trace", "made")]
    for name, pair in (
        ("sessions", (one.sessions, other.sessions)),
        ("cells", (one.cells, other.cells)),
        ("jobs", (one.jobs, other.jobs)),
        ("GPU-hours", (one.gpu_hours, other.gpu_hours)),
        ("running at a time, mean", (one.running_mean, other.running_mean)),
        ("running at a time, most", (one.running_max, other.running_max)),
        ("GPUs of one, mean", (one.gpus_mean, other.gpus_mean)),
    ):
        if any(pair):
            rows.append((name, _number(pair[0]), _number(pair[1])))
    for name, spreads in (
        ("runs for (s)", (one.duration_s, other.duration_s)),
        ("people think for (s)", (one.think_s, other.think_s)),
        ("from one to the next that comes (s)", (one.arrive_after_s, other.arrive_after_s)),
    ):
        if spreads[0] is not None:
            for part in ("p50", "p90", "p99", "mean"):
                trace, made = (_part(spread, part) for spread in spreads)
                rows.append((f"{name}, {part}", trace, made))
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {trace:>{widths[1]}}  {made:>{widths[2]}}".rstrip()
        for name, trace, made in rows
    )


def _part(spread: Spread | None, part: str) -> str:
    return "-" if spread is None else _number(getattr(spread, part))


def _number(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:,.2f}"
