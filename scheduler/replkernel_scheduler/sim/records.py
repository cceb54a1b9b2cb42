"""What a trace is made of: sessions with their cells, and jobs, as frozen records of one union.

Law: times are seconds from the trace's own beginning, `at` is when the record's subject comes, and
durations are what it takes alone on the hardware that was recorded. A session comes before its cells.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

AHEAD_S = 30.0
"""Where a trace does not say when a session began, it begins so long before its first cell."""


class Session(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A notebook that is open from `at` to `ends`; `gpus` is the most that one of its cells wants."""

    session: str
    at: float
    ends: float
    gpus: int
    user: str = ""


class Seen(msgspec.Struct, frozen=True, gc=False):
    """What a cell got when it was recorded: how long it waited for GPUs, had them, and where."""

    host: str
    queued_s: float
    leased_s: float


class Cell(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A cell of a session, submitted at `at`; `seen` where the trace is a journal.

    `milli`: it wants so many thousandths of its one GPU (0: all of it).
    """

    session: str
    at: float
    duration_s: float
    gpus: int
    seen: Seen | None = None
    milli: int = 0


class Pattern(msgspec.Struct, frozen=True, gc=False):
    """When an interactive job computes: `phases` are busy, idle, …, busy, between two idle ends."""

    prolog_s: float
    epilog_s: float
    phases: tuple[float, ...]


class Job(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A job that is submitted at `at`; `width` is its GPUs (in SWF files: processors), `nodes` 0 if unknown.

    `requested_s` is the run time that its user asked for (0: unknown), `memory_gb` what each GPU or
    processor used, `queue` and `state` are as recorded. `seconds_with`: how long it takes alone with each
    number of GPUs that it can run with, where that is known. `milli`: it wants so many thousandths of its
    one GPU. `gpu_models`: it runs on these only (none: on any). `cpus` and `host_memory_gb` are what all of
    it wants of its host, `kind` is its type in a table of speeds.
    """

    job: str
    at: float
    duration_s: float
    width: int
    nodes: int = 0
    requested_s: float = 0.0
    memory_gb: float = 0.0
    user: str = ""
    queue: str = ""
    state: str = ""
    pattern: Pattern | None = None
    seconds_with: tuple[tuple[int, float], ...] = ()
    milli: int = 0
    gpu_models: tuple[str, ...] = ()
    cpus: float = 0.0
    host_memory_gb: float = 0.0
    kind: str = ""


Record: TypeAlias = Session | Cell | Job


def order(record: Record) -> tuple[float, bool]:
    """Return the place of a record in time; of what comes at once, sessions are first."""
    return (record.at, not isinstance(record, Session))
