"""The Standard Workload Format of the Parallel Workloads Archive, with the columns for busy and idle
phases.

A row has 18 numbers, -1 where nothing is known; lines that begin with ; are comments. From column 22 on
there may be prolog, epilog, n, and n busy phases with n - 1 idle ones between (TSUBAME patterns, spec
4.3; n may be 0); there, queue 0 says that the job was interactive. Law: a row without run time and CPU
time, or without processors, has no work; where there is no run time the mean CPU time stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from replkernel_scheduler.sim.records import Job, Pattern
from replkernel_scheduler.sim.trace_file import TraceFile, number, whole

COLUMNS = 18
PATTERN = 21
KIB_PER_GB = 1024 * 1024
PHASES_MAX = 100_000
SLACK_S = 1.0
STATES = {"0": "failed", "1": "completed", "5": "cancelled"}


def looks_like(line: str) -> bool:
    """Say whether a file's first line is one of this form."""
    fields = line.split()
    return line.startswith(";") or (len(fields) >= COLUMNS and all(map(_is_number, fields[:COLUMNS])))


def records(file: TraceFile) -> Iterator[Job]:
    """Yield the jobs in the order of the file."""
    for line in file.lines():
        if not line.startswith(";"):
            job = file.take(partial(_job, line))
            if job is not None:
                yield job


def _job(line: str) -> Job | None:
    fields = line.split()
    if len(fields) < COLUMNS:
        raise ValueError(f"there are {len(fields)} columns, where SWF has {COLUMNS} or more")
    submitted = number(fields[1], "the submit time (column 2)")
    run_s = _known(fields[3], "the run time (column 4)") or _known(fields[5], "the CPU time (column 6)")
    width = _width(fields[4], "the processors (column 5)") or _width(fields[7], "the processors asked for")
    if not run_s or not width:
        return None
    return Job(
        fields[0],
        submitted,
        run_s,
        width,
        requested_s=_known(fields[8], "the time asked for (column 9)"),
        memory_gb=_known(fields[6], "the memory (column 7)") / KIB_PER_GB,
        user=fields[11],
        queue=fields[14],
        state=STATES.get(fields[10], ""),
        pattern=_pattern(fields, run_s) if len(fields) > PATTERN else None,
    )


def _pattern(fields: list[str], run_s: float) -> Pattern:
    prolog, epilog, busy = (number(text, "a phase") for text in fields[PATTERN : PATTERN + 3])
    phases = tuple([number(text, "a phase") for text in fields[PATTERN + 3 :]])
    if busy > PHASES_MAX or len(phases) != max(0, 2 * busy - 1):
        raise ValueError(f"there are {len(phases)} phases, where {busy:.0f} busy ones are announced")
    if abs(prolog + epilog + sum(phases) - run_s) > SLACK_S:
        raise ValueError(f"the phases take {prolog + epilog + sum(phases):g} s, and the job {run_s:g} s")
    return Pattern(prolog, epilog, phases)


def _width(text: str, name: str) -> int:
    return 0 if text == "-1" else whole(text, name)


def _known(text: str, name: str) -> float:
    """Return a number, or 0 where the file says -1: not known."""
    return 0.0 if text == "-1" else number(text, name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
