"""A row for each task that is over, as Parquet: the columns of `rows.py`, typed; columns as an Arrow table.

Law: the only module that knows pyarrow, which is loaded when something is made with it; rows are written in
groups, so a run of a million jobs keeps GROUP_ROWS of them in memory. The same run gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.rows import COLUMNS, values_of
from replkernel_scheduler.sim.task import Outcome, Task

GROUP_ROWS = 65_536


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
            "Parquet files and Arrow tables are made with pyarrow: pip install 'replkernel[sim]', or say "
            "--rows csv."
        ) from error
    return arrow, parquet


def _schema(arrow: ModuleType, types: Mapping[str, type]) -> object:
    made = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    return arrow.schema([(name, made[kind]) for name, kind in types.items()])


def arrow_table(columns: Mapping[str, Sequence[object]], types: Mapping[str, type]) -> object:
    """Return columns as an Arrow table; raise SimulationError where pyarrow is not installed."""
    arrow, _ = _arrow()
    return arrow.table([list(column) for column in columns.values()], schema=_schema(arrow, types))


class ParquetRows:
    """The file."""

    def __init__(self, path: Path) -> None:
        """Begin the file anew; raise SimulationError where pyarrow is not installed."""
        self._arrow, parquet = _arrow()
        self._schema = _schema(self._arrow, COLUMNS)
        self._file = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []

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
        self._rows.append(values_of(task, outcome))
        if len(self._rows) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = [list(column) for column in zip(*self._rows, strict=True)]
            self._file.write_table(self._arrow.table(columns, schema=self._schema))
            self._rows = []
