"""What keeping a notebook's state saves, where idle sessions are ended (spec 1.9).

For an interval: a session that idles as long is ended, and its next cell needs all cells before it run again,
unless their state was kept. Law: it looks at the trace only; a cell begins when it comes and the one before
is over, so no policy is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replkernel_scheduler.sim.records import Cell, Record

INTERVALS_S = (300.0, 900.0, 1800.0, 3600.0, 5400.0, 7200.0, 14_400.0)
"""From 5 minutes to 4 hours; 30 and 90 minutes are the presets of the paper's code."""


def saved_gpu_hours(
    records: Iterable[Record], intervals_s: Sequence[float] = INTERVALS_S
) -> dict[float, float]:
    """Return, for each interval, the GPU-hours of cells that need not run again."""
    ended_at: dict[str, float] = {}
    work_gpu_s: dict[str, float] = {}
    saved = dict.fromkeys(intervals_s, 0.0)
    for record in records:
        if not isinstance(record, Cell):
            continue
        ended = ended_at.get(record.session, record.at)
        before = work_gpu_s.get(record.session, 0.0)
        for interval_s in intervals_s:
            if record.at - ended >= interval_s:
                saved[interval_s] += before / 3600.0
        ended_at[record.session] = max(ended, record.at) + record.duration_s
        work_gpu_s[record.session] = before + (record.milli / 1000 or record.gpus) * record.duration_s
    return saved
