"""When each kernel process computes and when it idles, from the CPU time that it has at each sample. Pure.

Law: a process is busy in a sample of which it computed for more than a fifth (spec 4.3). What is kept is
bounded: so many phases of a process, after which its record begins anew, and so many records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec

BUSY_SHARE = 0.2
RECENT_S = 60.0
"""What a process has computed on within this counts as its own: cells come one after the other."""
PHASES_MAX = 1_000
RECORDS_MAX = 500
INTERACTIVE = 0
UNKNOWN = (-1,) * 6
"""What the Standard Workload Format says of jobs on queue 0, and where nothing is known."""
SECONDS_OVER = 3_600.0
"""A sample over so long a time says nothing: the machine slept."""


class Named(NamedTuple):
    """A process for good: its pid, and when it started in ticks since boot."""

    pid: int
    started: int


class Record(msgspec.Struct):
    """A process since the Unix time `at`: how long it was idle, busy, idle and so on, an idle time first."""

    kernel: str
    at: float
    phases_s: Annotated[list[float], msgspec.Meta(min_length=1)]


class Living(msgspec.Struct):
    """The record of a process that lived when it was kept."""

    pid: int
    started: int
    record: Record


class Kept(msgspec.Struct):
    """What an agent writes down of its kernels' processes, for the next agent and for who asks."""

    over: list[Record] = []
    living: list[Living] = []


class _Process(msgspec.Struct):
    """One that lives; `recent` has what it computed on in the last samples."""

    record: Record
    cpu_s: float
    recent: deque[tuple[float, int]]


class Phases:
    """Those of all kernel processes of an agent."""

    def __init__(self, kept: Kept | None = None) -> None:
        """Go on with what an earlier agent has kept; nothing is known of the time since then."""
        kept = kept or Kept()
        self._over: deque[Record] = deque(kept.over, maxlen=RECORDS_MAX)
        self._left = {Named(one.pid, one.started): one.record for one in kept.living}
        self._live: dict[Named, _Process] = {}
        self._at: float | None = None

    def take(self, seen: Mapping[Named, tuple[str, float]], now: float, wall: float) -> None:
        """Take a sample: each process with its kernel, and the CPU seconds that it has had in all."""
        passed_s = 0.0 if self._at is None else now - self._at
        self._at = now
        for named in [named for named in self._live if named not in seen]:
            self._ends(self._live.pop(named).record)
        for named, (kernel, cpu_s) in seen.items():
            process = self._live.get(named)
            if process is None:
                record = self._left.pop(named, None) or Record(kernel, wall, [0.0])
                self._live[named] = _Process(record, cpu_s, deque())
                continue
            had_s, process.cpu_s = cpu_s - process.cpu_s, cpu_s
            if 0.0 < passed_s < SECONDS_OVER:
                share = had_s / passed_s
                _add(process, max(1, round(share)) if share > BUSY_SHARE else 0, passed_s, now)
                if len(process.record.phases_s) > PHASES_MAX:
                    self._ends(process.record)
                    process.record = Record(kernel, wall, [0.0])
        if seen:
            for left in self._left.values():
                self._ends(left)
            self._left.clear()

    def busy(self) -> int:
        """Return on how many cores kernels have just computed: the most of each process's last samples."""
        return sum([max((cores for _, cores in one.recent), default=0) for one in self._live.values()])

    def kept(self) -> Kept:
        """Return all for who goes on."""
        live = {named: process.record for named, process in self._live.items()} | self._left
        return Kept(list(self._over), [Living(*named, record) for named, record in live.items()])

    def _ends(self, record: Record) -> None:
        if len(record.phases_s) > 1:  # One that never computed is no pattern.
            self._over.append(record)


def _add(process: _Process, cores: int, passed_s: float, now: float) -> None:
    process.recent.append((now, cores))
    while process.recent[0][0] < now - RECENT_S:
        process.recent.popleft()
    phases_s = process.record.phases_s
    if bool(cores) == (len(phases_s) % 2 == 0):
        phases_s[-1] += passed_s
    else:
        phases_s.append(passed_s)


def swf_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield a trace of these as interactive jobs, in the Standard Workload Format with phases (spec 4.3)."""
    yield "; When kernels computed and when they idled: busy phases between idle ones, from column 22 on."
    used = sorted([one for one in records if len(one.phases_s) > 1], key=lambda one: one.at)
    for number, record in enumerate(used, 1):
        prolog_s, *phases_s = [round(phase_s, 1) for phase_s in record.phases_s]
        epilog_s = 0.0 if len(phases_s) % 2 else phases_s.pop()
        run_s = prolog_s + sum(phases_s) + epilog_s
        fields: list[float | str] = [number, round(record.at - used[0].at, 1), 0, f"{run_s:.1f}", 1]
        fields += [*UNKNOWN[:2], 1, *UNKNOWN[:2], 1, *UNKNOWN[:3], INTERACTIVE, *UNKNOWN[:6]]
        yield " ".join(map(str, [*fields, prolog_s, epilog_s, (len(phases_s) + 1) // 2, *phases_s]))
