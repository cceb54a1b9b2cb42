"""The jobs of Microsoft's Philly clusters (2017), in the three forms that go around.

As published: cluster_job_log, one JSON array of jobs with their attempts; and reduced to a table `#job
id,arrival time (sec),topology,shape,size,duration (sec)`, or to Pollux's, `timestamp,duration,num_gpus,…`.
Law: a job's duration is that of all of its attempts, its width that of the widest; one that was never
started, or has no end, has no work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from replkernel_scheduler.sim.csv_rows import header_of, rows
from replkernel_scheduler.sim.dates import seconds_of
from replkernel_scheduler.sim.errors import TraceUnreadable
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.trace_file import TraceFile, number, whole

POLLUX = frozenset({"timestamp", "duration", "num_gpus"})
TABLE = frozenset({"job id", "arrival time (sec)", "size", "duration (sec)"})
ENTRY = frozenset({"jobid", "attempts", "submitted_time"})
ENTRY_MAX = 16 * 1024 * 1024


def is_table(header: list[str]) -> bool:
    """Say whether a header is that of the table."""
    return set(header) >= TABLE


def is_pollux(header: list[str]) -> bool:
    """Say whether a header is that of Pollux's table."""
    return set(header) >= POLLUX


def pollux_records(file: TraceFile) -> Iterator[Job]:
    """Yield the jobs of Pollux's table, which have no names: a job is called by its line."""
    for row in rows(file, header_of(file)):
        job = file.take(partial(_of_pollux, row, str(file.line)))
        if job is not None:
            yield job


def _of_pollux(row: dict[str, str], name: str) -> Job | None:
    gpus, duration_s = whole(row["num_gpus"], "num_gpus"), number(row["duration"], "duration")
    if not gpus or not duration_s:
        return None
    at = seconds_of(row["timestamp"], "timestamp")
    return Job(name, at, duration_s, gpus, queue=row.get("cluster", ""))


def is_log(line: str) -> bool:
    """Say whether a file's first line begins a JSON array or object."""
    return line.lstrip().startswith(("[", "{"))


def table_records(file: TraceFile) -> Iterator[Job]:
    """Yield the table's jobs in the order of the file."""
    for row in rows(file, header_of(file)):
        job = file.take(partial(_of_row, row))
        if job is not None:
            yield job


def _of_row(row: dict[str, str]) -> Job | None:
    gpus, duration_s = whole(row["size"], "size"), number(row["duration (sec)"], "duration")
    if not gpus or not duration_s:
        return None
    return Job(row["job id"], number(row["arrival time (sec)"], "arrival time"), duration_s, gpus)


def log_records(file: TraceFile) -> Iterator[Job]:
    """Yield the log's jobs in the order of the file; the line of a bad one is where it ends."""
    for text in _entries(file):
        job = file.take(partial(_of_entry, text))
        if job is not None:
            yield job


def _entries(file: TraceFile) -> Iterator[str]:
    """Yield the texts of the array's objects, one at a time in memory."""
    parts: list[str] = []
    depth = size = 0
    quoted = escaped = False
    for line in file.pieces():
        begin = 0
        for place, sign in enumerate(line):
            if quoted:
                quoted, escaped = escaped or sign != '"', not escaped and sign == "\\"
            elif sign == '"':
                quoted = True
            elif sign == "{":
                begin = place if depth == 0 else begin
                depth += 1
            elif sign == "}" and depth:
                depth -= 1
                if depth == 0:
                    yield "".join([*parts, line[begin : place + 1]])
                    parts, size, begin = [], 0, place + 1
        if depth:
            parts.append(line[begin:])
            size += len(line)
            if size > ENTRY_MAX:
                raise TraceUnreadable(
                    f"{file.path}, line {file.line}: one job is longer than {ENTRY_MAX} bytes."
                )
    if depth:
        raise TraceUnreadable(f"{file.path} ends in the middle of a job, at line {file.line}: get it again.")


def _of_entry(text: str) -> Job | None:
    entry: dict[str, Any] = json.loads(text)
    if not entry.keys() >= ENTRY:
        raise ValueError(f"it has no {', '.join(sorted(ENTRY - entry.keys()))}")
    duration_s, width, nodes = 0.0, 0, 0
    for attempt in entry["attempts"]:
        begin, end = attempt["start_time"], attempt["end_time"]
        if begin in (None, "None") or end in (None, "None"):
            continue
        ran_s = seconds_of(end, "end_time") - seconds_of(begin, "start_time")
        if ran_s < 0:
            raise ValueError(f"an attempt ends at {end}, before it begins at {begin}")
        duration_s += ran_s
        gpus = sum(len(host["gpus"]) for host in attempt["detail"])
        if gpus > width:
            width, nodes = gpus, len(attempt["detail"])
    if not width or not duration_s:
        return None
    return Job(
        entry["jobid"],
        seconds_of(entry["submitted_time"], "submitted_time"),
        duration_s,
        width,
        nodes=nodes,
        user=entry.get("user") or "",
        queue=entry.get("vc") or "",
        state=(entry.get("status") or "").lower(),
    )
