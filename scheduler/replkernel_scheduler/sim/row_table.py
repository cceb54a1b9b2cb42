"""Rows in memory, column by column: what a run's tasks took, or the figures of a sweep.

Law: it needs no library. pandas, Arrow and whatever reads Arrow's stream (Polars, DuckDB) take it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.parquet_rows import arrow_table
from replkernel_scheduler.sim.rows import COLUMNS, Value, line, values_of
from replkernel_scheduler.sim.task import Outcome, Task

SHOWN_ROWS = 10


class RowTable(Mapping[str, Sequence[Value]]):
    """Columns by name, all equally long; `types` says what each one holds beside None."""

    def __init__(self, types: Mapping[str, type]) -> None:
        """Begin without rows."""
        self.types = dict(types)
        self._columns: dict[str, list[Value]] = {name: [] for name in types}
        self._lists = tuple(self._columns.values())

    def add(self, values: Sequence[Value]) -> None:
        """Add a row."""
        for column, value in zip(self._lists, values, strict=True):
            column.append(value)

    def __getitem__(self, name: str) -> Sequence[Value]:
        """Return a column."""
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the columns' names."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return how many columns there are, as of any mapping; `count` is of rows."""
        return len(self._columns)

    @property
    def count(self) -> int:
        """Return how many rows there are."""
        return len(self._lists[0])

    def rows(self) -> Iterator[dict[str, Value]]:
        """Yield each row by its columns' names."""
        for values in zip(*self._lists, strict=True):
            yield dict(zip(self._columns, values, strict=True))

    def where(self, **wanted: Value) -> RowTable:
        """Return the rows that have these values."""
        found = RowTable(self.types)
        for row in self.rows():
            if all(row[name] == value for name, value in wanted.items()):
                found.add(list(row.values()))
        return found

    def to_csv(self) -> Iterator[str]:
        """Yield its lines as CSV."""
        yield line(self._columns)
        for values in zip(*self._lists, strict=True):
            yield line(values)

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`; raise SimulationError where pyarrow is not installed."""
        return arrow_table(self._columns, self.types)

    def to_pandas(self) -> object:
        """Return a `pandas.DataFrame`; raise SimulationError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise SimulationError("A DataFrame is made with pandas: pip install pandas.") from error
        return pandas.DataFrame(self._columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the rows to whatever reads Arrow's stream."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Return its size and its columns."""
        return f"<{self.count:,} rows: {', '.join(self._columns)}>"

    def _repr_html_(self) -> str:
        """Return the first rows, for a notebook."""
        head = "".join([f"<th>{escape(name)}</th>" for name in self._columns])
        body = "".join(
            [
                "<tr>" + "".join([f"<td>{escape(_shown(value))}</td>" for value in row.values()]) + "</tr>"
                for row in islice(self.rows(), SHOWN_ROWS)
            ]
        )
        more = f"<p>{self.count:,} rows</p>" if self.count > SHOWN_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


class RowsInMemory:
    """The rows of one run, cells and jobs apart."""

    def __init__(self) -> None:
        """Begin without rows."""
        self.cells, self.jobs = RowTable(COLUMNS), RowTable(COLUMNS)

    def __call__(self, task: Task, outcome: Outcome) -> None:
        """Take a row."""
        (self.jobs if task.job else self.cells).add(values_of(task, outcome))


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1 else f"{value:,.2f}"
    return "" if value is None else str(value)
