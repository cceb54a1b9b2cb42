"""Runs by user, by size or by any other column of the rows, beside each other: a table, and as text.

Law: `views.py` computes; here rows are kept for it, and its tables are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.fairness import Integral
from replkernel_scheduler.sim.row_table import RowTable
from replkernel_scheduler.sim.rows import COLUMNS, Value, values_of
from replkernel_scheduler.sim.table import aligned, counted
from replkernel_scheduler.sim.task import Outcome, Task
from replkernel_scheduler.sim.views import FIGURES, by_column

Grouped: TypeAlias = dict[str, list[tuple[Value, ...]]]
"""By the columns that are wanted: a row for each value, with its figures."""
Run: TypeAlias = tuple[str, Mapping[str, str], Grouped]
"""Its policy, its setting, and what it has by which column."""
SHOWN_MAX = 20
NEEDED = (
    "kind", "outcome", "gpus", "gpu_milli", "submitted_s", "bound_s", "done_s", "alone_s", "user", "warmup",
)  # fmt: skip
HEADS = {
    "count": "tasks", "wait_mean_s": "wait mean", "wait_p95_s": "p95", "completion_mean_s": "until done mean",
    "slowdown_mean": "slowdown mean", "fairness_mean": "FTF mean", "unfair": "unfair", "gpu_hours": "GPU-h",
}  # fmt: skip


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Return columns, each once; raise SimulationError for one that rows do not have."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name not in COLUMNS:
            raise SimulationError(f"Rows have no column {name!r}: there are {', '.join(COLUMNS)}.")
    return found


class RowsToGroup:
    """The rows of a run, as far as they are needed; jobs, or cells where there are no jobs."""

    def __init__(self, by: Sequence[str]) -> None:
        """Begin without rows."""
        self._by = by
        chosen = {name: kind for name, kind in COLUMNS.items() if name in NEEDED or name in by}
        self._places = [place for place, name in enumerate(COLUMNS) if name in chosen]
        self._cells, self._jobs = RowTable(chosen), RowTable(chosen)

    def __call__(self, task: Task, outcome: Outcome) -> None:
        """Take a row."""
        values = values_of(task, outcome)
        (self._jobs if task.job else self._cells).add([values[place] for place in self._places])

    def grouped(self, gpu_seconds: Integral) -> Grouped:
        """Return them by each column; `gpu_seconds` tells those of all hosts until a time."""
        rows = self._jobs if self._jobs.count else self._cells
        return {
            name: [tuple(row.values()) for row in by_column(rows, name, gpu_seconds).rows()]
            for name in self._by
        }


def together(runs: Iterable[Run], name: str) -> RowTable:
    """Return the rows of all runs by a column, with policy and setting in front."""
    known = [*runs]
    keys = list(dict.fromkeys(key for _, setting, _ in known for key in setting))
    made = RowTable({"policy": str, **dict.fromkeys(keys, str), name: COLUMNS[name], **FIGURES})
    for policy, setting, grouped in known:
        for row in grouped.get(name, []):
            made.add([policy, *(setting.get(key) for key in keys), *row])
    return made


def told(runs: Iterable[Run], name: str) -> str:
    """Return the table as text; of many values those with the most GPU-hours."""
    table = together(runs, name)
    place = list(table).index(name)
    work: dict[Value, float] = {}
    for row in table.rows():
        hours = row["gpu_hours"]
        assert isinstance(hours, float)
        work[row[name]] = work.get(row[name], 0.0) + hours
    shown = set(sorted(work, key=lambda value: -work[value])[:SHOWN_MAX])
    rows = [[*(HEADS.get(head, head) for head in table)]]
    for row in table.rows():
        if row[name] in shown:
            rows.append([_text(head, value) for head, value in row.items()])
    empty = [head for head in table if all(value is None for value in table[head])]
    rows = [[text for text, head in zip(row, table, strict=True) if head not in empty] for row in rows]
    head = f"By {name}"
    if len(work) > SHOWN_MAX:
        head += f", of {counted(len(work), 'value')} the {SHOWN_MAX} with the most GPU-hours"
    return "\n".join([f"{head}:", "", *aligned(rows, left=place + 1)])


def _text(head: str, value: Value) -> str:
    if value is None:
        return "-"
    if head == "unfair":
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value
