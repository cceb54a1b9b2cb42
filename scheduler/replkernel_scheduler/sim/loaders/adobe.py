"""The June 2021 cells of Adobe's research cluster, as the NotebookOS dashboard has them.

Columns `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`, times in minutes, written
session by session without naming them. Law: a new session begins where submit_time drops, or where a
cell would begin before the one above it is over; a session is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from replkernel_scheduler.sim.csv_rows import header_of, rows
from replkernel_scheduler.sim.records import AHEAD_S, Cell, Record, Session
from replkernel_scheduler.sim.trace_file import TraceFile, number, whole

COLUMNS = frozenset({"job_id", "num_gpu", "submit_time", "duration", "interval"})
MINUTE_S = 60.0
CELLS_MAX = 1_000_000


def looks_like(header: list[str]) -> bool:
    """Say whether a header is that of this form."""
    return set(header) >= COLUMNS


def records(file: TraceFile) -> Iterator[Record]:
    """Yield each session, then its cells."""
    cells: list[Cell] = []
    number_of_session = 0
    for row in rows(file, header_of(file)):
        cell = file.take(partial(_cell, row, f"{number_of_session}"))
        if cell is None:
            continue
        if cells and (cell.at < cells[-1].at + cells[-1].duration_s or len(cells) == CELLS_MAX):
            yield from _session(cells)
            cells, number_of_session = [], number_of_session + 1
            cell = Cell(f"{number_of_session}", cell.at, cell.duration_s, cell.gpus)
        cells.append(cell)
    if cells:
        yield from _session(cells)


def _cell(row: dict[str, str], session: str) -> Cell | None:
    duration_s = MINUTE_S * number(row["duration"], "duration")
    at, gpus = MINUTE_S * number(row["submit_time"], "submit_time"), whole(row["num_gpu"], "num_gpu")
    return Cell(session, at, duration_s, gpus) if duration_s else None


def _session(cells: list[Cell]) -> Iterator[Record]:
    ends = max(cell.at + cell.duration_s for cell in cells)
    yield Session(cells[0].session, cells[0].at - AHEAD_S, ends, max(cell.gpus for cell in cells))
    yield from cells
