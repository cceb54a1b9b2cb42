"""The jobs of the Helios clusters (SenseTime 2020), in the three forms that go around.

As published
(`job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue`, dates in
the cluster's time), reduced to `job_id,arrival_s,service_sec,gpu_count`, and rewritten with
`tenant,submit_time,num_chips,num_nodes,duration_s` (microseconds). Law: a job without GPUs or duration
has no work for us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from replkernel_scheduler.sim.csv_rows import header_of, rows
from replkernel_scheduler.sim.dates import seconds_of
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.trace_file import TraceFile, number, whole

PUBLISHED = frozenset({"job_id", "vc", "gpu_num", "node_num", "state", "submit_time", "duration"})
REDUCED = frozenset({"job_id", "arrival_s", "service_sec", "gpu_count"})
REWRITTEN = frozenset({"job_id", "tenant", "submit_time", "num_chips", "num_nodes", "duration_s"})
MICROSECONDS = 1e6


def looks_like(header: list[str]) -> bool:
    """Say whether a header is one of this form."""
    return any(form <= set(header) for form in (PUBLISHED, REDUCED, REWRITTEN))


def records(file: TraceFile) -> Iterator[Job]:
    """Yield the jobs in the order of the file."""
    header = header_of(file)
    parse: Callable[[dict[str, str]], Job | None] = _published
    if set(header) >= REDUCED:
        parse = _reduced
    elif set(header) >= REWRITTEN:
        parse = _rewritten
    for row in rows(file, header):
        job = file.take(partial(parse, row))
        if job is not None:
            yield job


def _reduced(row: dict[str, str]) -> Job | None:
    gpus, duration_s = whole(row["gpu_count"], "gpu_count"), number(row["service_sec"], "service_sec")
    if not gpus or not duration_s:
        return None
    return Job(row["job_id"], number(row["arrival_s"], "arrival_s"), duration_s, gpus)


def _rewritten(row: dict[str, str]) -> Job | None:
    gpus, duration_s = whole(row["num_chips"], "num_chips"), number(row["duration_s"], "duration_s")
    if not gpus or not duration_s:
        return None
    return Job(
        row["job_id"],
        number(row["submit_time"], "submit_time") / MICROSECONDS,
        duration_s,
        gpus,
        nodes=whole(row["num_nodes"], "num_nodes"),
        user=row.get("user", ""),
        queue=row["tenant"],
        state=row.get("final_status", "").lower(),
    )


def _published(row: dict[str, str]) -> Job | None:
    gpus, duration_s = whole(row["gpu_num"], "gpu_num"), number(row["duration"], "duration")
    if not gpus or not duration_s:
        return None
    return Job(
        row["job_id"],
        seconds_of(row["submit_time"], "submit_time"),
        duration_s,
        gpus,
        nodes=whole(row["node_num"], "node_num"),
        user=row.get("user", ""),
        queue=row["vc"],
        state=row["state"].lower(),
    )
