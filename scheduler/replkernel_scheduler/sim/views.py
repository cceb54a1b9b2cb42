"""Rows by user, by size, or by any other column; how evenly users are served; how many wait.

Law: it counts what the rows say, and only tasks that were served. Slowdown is bounded: (from submitting
until all is done) / (run alone, or BOUND_S if that is longer), and never below 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.row_table import RowTable
from replkernel_scheduler.sim.rows import COLUMNS, Value
from replkernel_scheduler.sim.summary import spread

BOUND_S = 10.0
"""Shorter runs count as this long (Feitelson): else a job of a second would tell of nothing else."""
HOUR_S = 3600.0
FIGURES: dict[str, type] = {
    "count": int, "wait_mean_s": float, "wait_p95_s": float, "completion_mean_s": float,
    "slowdown_mean": float, "gpu_hours": float,
}  # fmt: skip


def by_column(rows: RowTable, name: str) -> RowTable:
    """Return a row for each value of a column; raise SimulationError if there is no such column."""
    if name not in COLUMNS:
        raise SimulationError(f"Rows have no column {name!r}: there are {', '.join(COLUMNS)}.")
    groups: dict[Value, list[dict[str, Value]]] = {}
    for row in _served(rows):
        groups.setdefault(row[name], []).append(row)
    table = RowTable({name: COLUMNS[name], **FIGURES})
    for value in sorted(groups, key=lambda value: (value is None, value)):
        table.add([value, *_figures(groups[value])])
    return table


def jain(rows: RowTable) -> float:
    """Return Jain's index of users' mean slowdown: 1 if all are alike, 1 / users if one alone is slowed."""
    means = [_number(value) for value in by_column(rows, "user")["slowdown_mean"]]
    squares = sum(mean * mean for mean in means)
    return sum(means) ** 2 / (len(means) * squares) if squares else 1.0


def waiting(rows: RowTable) -> RowTable:
    """Return how many wait, at each time at which that changes; who was never served is not among them."""
    changes: dict[float, int] = {}
    for row in _served(rows):
        for name, step in (("submitted_s", 1), ("bound_s", -1)):
            at = _number(row[name])
            changes[at] = changes.get(at, 0) + step
    table, there = RowTable({"at_s": float, "waiting": int}), 0
    for at in sorted(changes):
        if changes[at]:
            there += changes[at]
            table.add([at, there])
    return table


def bounded_slowdown(row: dict[str, Value]) -> float:
    """Return by how many times a task took longer than alone."""
    took_s = _number(row["done_s"]) - _number(row["submitted_s"])
    return max(1.0, took_s / max(_number(row["alone_s"]), BOUND_S))


def _served(rows: RowTable) -> list[dict[str, Value]]:
    return [row for row in rows.rows() if row["outcome"] == "done"]


def _figures(rows: Sequence[dict[str, Value]]) -> list[Value]:
    waits = spread([_number(row["bound_s"]) - _number(row["submitted_s"]) for row in rows])
    times = [_number(row["done_s"]) - _number(row["submitted_s"]) for row in rows]
    slowdowns = [bounded_slowdown(row) for row in rows]
    work_h = sum(_number(row["gpus"]) * _number(row["alone_s"]) for row in rows) / HOUR_S
    assert waits is not None
    count = len(rows)
    return [count, waits.mean, waits.p95, sum(times) / count, sum(slowdowns) / count, work_h]


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value
