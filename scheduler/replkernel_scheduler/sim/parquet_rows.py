"""A row for each task that is over, as Parquet: the columns of `rows.py`, typed.

Law: the only module that knows pyarrow, which is loaded when such a file is begun; rows are written in
groups, so a run of a million jobs keeps GROUP_ROWS of them in memory. The same run gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.rows import COLUMNS
from replkernel_scheduler.sim.task import Outcome, Task

GROUP_ROWS = 65_536
TEXTS, WHOLES, FLAGS = ("kind", "name", "outcome", "host"), ("number", "gpus", "lost_runs"), (
    "immediate", "moved", "reused",
)  # fmt: skip


def can_be_written() -> bool:
    """Say whether pyarrow is installed."""
    try:
        _arrow()
    except SimulationError:
        return False
    return True


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise SimulationError(
            "Parquet files are written with pyarrow: pip install 'replkernel[sim]', or say --rows csv."
        ) from error
    return arrow, parquet


class ParquetRows:
    """The file; a task that was not served has no times but its submission."""

    def __init__(self, path: Path) -> None:
        """Begin the file anew; raise SimulationError where pyarrow is not installed."""
        self._arrow, parquet = _arrow()
        self._schema = self._arrow.schema([(name, self._type(name)) for name in COLUMNS])
        self._file = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []

    def _type(self, name: str) -> Any:
        if name in TEXTS:
            return self._arrow.string()
        if name in WHOLES:
            return self._arrow.int64()
        return self._arrow.bool_() if name in FLAGS else self._arrow.float64()

    def __enter__(self) -> ParquetRows:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left, and close the file."""
        self._flush()
        self._file.close()

    def __call__(self, task: Task, outcome: Outcome) -> None:
        """Take a row."""
        kind = "job" if task.job else "cell"
        begin = (kind, task.name, task.number, outcome, task.gpus)
        if outcome == "done":
            times = (task.submitted, task.bound, task.started, task.ended, task.done)
            flags = (task.immediate, task.moved, task.reused)
            self._rows.append((*begin, task.host, *times, *flags, task.tries))
        else:
            self._rows.append((*begin, None, task.submitted, *[None] * 7, task.tries))
        if len(self._rows) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = [list(column) for column in zip(*self._rows, strict=True)]
            self._file.write_table(self._arrow.table(columns, schema=self._schema))
            self._rows = []
