"""Rows by user, by size, or by any other column; how evenly users are served; how many wait.

Law: it counts what the rows say, and only tasks that were served and came after the warm-up (who waits: all
that were served). Slowdown is bounded: (from submitting until all is done) / (run alone, or BOUND_S if that
is longer), and never below 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.fairness import FAIR, Integral, Lived, finish_time_fairness
from replkernel_scheduler.sim.figures import BOUND_S
from replkernel_scheduler.sim.row_table import RowTable
from replkernel_scheduler.sim.rows import COLUMNS, Value
from replkernel_scheduler.sim.summary import spread

HOUR_S = 3600.0
FIGURES: dict[str, type] = {
    "count": int, "wait_mean_s": float, "wait_p95_s": float, "completion_mean_s": float,
    "slowdown_mean": float, "fairness_mean": float, "unfair": float, "gpu_hours": float,
}  # fmt: skip
"""Finish-time fairness is of jobs; cells have none."""


def by_column(rows: RowTable, name: str, gpu_seconds: Integral) -> RowTable:
    """Return a row for each value of a column; raise SimulationError if there is no such column.

    `gpu_seconds` tells those of all hosts until a time.
    """
    if name not in rows:
        raise SimulationError(f"Rows have no column {name!r}: there are {', '.join(rows)}.")
    served = _served(rows)
    jobs = [_lived(row) for row in served if row["kind"] == "job"]
    fairness = iter(finish_time_fairness(jobs, gpu_seconds))
    groups: dict[Value, list[tuple[dict[str, Value], float | None]]] = {}
    for row in served:
        fair = next(fairness) if row["kind"] == "job" else None
        if not row["warmup"]:
            groups.setdefault(row[name], []).append((row, fair))
    table = RowTable({name: COLUMNS[name], **FIGURES})
    for value in sorted(groups, key=lambda value: (value is None, value)):
        table.add([value, *_figures(groups[value])])
    return table


def jain(rows: RowTable) -> float:
    """Return Jain's index of users' mean slowdown: 1 if all are alike, 1 / users if one alone is slowed."""
    users: dict[Value, list[float]] = {}
    for row in _served(rows):
        if not row["warmup"]:
            users.setdefault(row["user"], []).append(bounded_slowdown(row))
    means = [sum(times) / len(times) for times in users.values()]
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


def _lived(row: dict[str, Value]) -> Lived:
    took_s = _number(row["done_s"]) - _number(row["submitted_s"])
    return Lived(_number(row["submitted_s"]), took_s, _number(row["alone_s"]), _amount(row))


def _figures(group: Sequence[tuple[dict[str, Value], float | None]]) -> list[Value]:
    rows, fairness = [row for row, _ in group], [times for _, times in group if times is not None]
    waits = spread([_number(row["bound_s"]) - _number(row["submitted_s"]) for row in rows])
    times = [_number(row["done_s"]) - _number(row["submitted_s"]) for row in rows]
    slowdowns = [bounded_slowdown(row) for row in rows]
    work_h = sum(_amount(row) * _number(row["alone_s"]) for row in rows) / HOUR_S
    assert waits is not None
    count = len(rows)
    fair: list[Value] = [None, None]
    if fairness:
        unfair = sum([times > FAIR for times in fairness]) / len(fairness)
        fair = [sum(fairness) / len(fairness), unfair]
    return [count, waits.mean, waits.p95, sum(times) / count, sum(slowdowns) / count, *fair, work_h]


def _amount(row: dict[str, Value]) -> float:
    """Return how many GPUs a task had: a whole number, but for a part of one."""
    return _number(row["gpus"]) if row["gpu_milli"] is None else _number(row["gpu_milli"]) / 1000


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value
