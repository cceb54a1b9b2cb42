"""A row for each task that is over: its values, and their form as CSV.

Law: one writer a file, rows in the order in which tasks end; times in seconds from the beginning of the
run, with six decimals, so the same run gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from replkernel_scheduler.sim.task import Outcome, Task

COLUMNS: dict[str, type] = {
    "kind": str, "name": str, "number": int, "outcome": str, "gpus": int, "host": str,
    "submitted_s": float, "bound_s": float, "started_s": float, "ended_s": float, "done_s": float,
    "immediate": bool, "moved": bool, "reused": bool, "lost_runs": int,
    "user": str, "queue": str, "nodes": int, "requested_s": float, "alone_s": float, "warmup": bool,
    "gpu_milli": int,
}  # fmt: skip
"""From `user` on as the trace says; `alone_s` is how long it runs by itself, `warmup`: it is not counted.

`gpu_milli`: so many thousandths of its one GPU are its own; None: all of it."""
Value: TypeAlias = str | int | float | bool | None
_NOT_SERVED = (None,) * 7


def values_of(task: Task, outcome: Outcome) -> tuple[Value, ...]:
    """Return a task's row; None for what it does not have, as one that was not served has no times."""
    begin = ("job" if task.job else "cell", task.name, task.number, outcome, task.gpus)
    job = task.asked
    asked = (job.queue or None, job.nodes or None, job.requested_s or None) if job else (None, None, None)
    end = (task.tries, task.user or None, *asked, task.duration_s, task.early, task.milli or None)
    if outcome != "done":
        return (*begin, None, task.submitted, *_NOT_SERVED, *end)
    times = (task.submitted, task.bound, task.started, task.ended, task.done)
    return (*begin, task.host, *times, task.immediate, task.moved, task.reused, *end)


class Rows:
    """The file."""

    def __init__(self, path: Path) -> None:
        """Begin the file anew."""
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._file.write(",".join(COLUMNS) + "\n")

    def __enter__(self) -> Rows:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()

    def __call__(self, task: Task, outcome: Outcome) -> None:
        """Write a row."""
        self._file.write(line(values_of(task, outcome)))


def line(values: Iterable[Value]) -> str:
    """Return a row as CSV."""
    return ",".join([_text(value) for value in values]) + "\n"


def _text(value: Value) -> str:
    """Return a value as CSV wants it."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"' if any(sign in value for sign in ',"\n') else value
    return "" if value is None else f"{value:d}"
