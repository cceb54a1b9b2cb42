"""Where a command writes: rows of tasks beside the document and the report.

Law: until a run is over, its rows are in files that are called unfinished, and an earlier command's stay as
they were. What is over stays, whatever becomes of the runs after it: `<run>.run.json` is written last, and
says of which traces, policy and plan the rows beside it are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from replkernel_scheduler.sim.cases import Case
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.figures import RowSink
from replkernel_scheduler.sim.groups import Grouped
from replkernel_scheduler.sim.parquet_rows import ParquetRows
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.row_table import RowTable
from replkernel_scheduler.sim.rows import COLUMNS, Rows
from replkernel_scheduler.sim.summary import RunSummary, Summary
from replkernel_scheduler.sim.task import Outcome, Task

SINKS: dict[str, Callable[[Path], Rows | ParquetRows]] = {"csv": Rows, "parquet": ParquetRows}
UNFINISHED = ".unfinished"
REPORT = "report.html"
SHOWN_MAX = 3
LINE_MAX = 1024


class Kept(msgspec.Struct, frozen=True):
    """What a run leaves beside its rows: its mark, its figures, and what its plots are drawn from."""

    mark: str
    run: RunSummary
    picture: Picture
    grouped: Grouped = {}


class Output(msgspec.Struct, frozen=True):
    """Where rows of tasks go, if anywhere, and in which forms."""

    directory: Path | None
    forms: tuple[str, ...]
    kept: bool = False
    """Rows are kept in memory, too."""
    resume: bool = False
    """What an earlier command has finished is taken from there."""
    by: tuple[str, ...] = ()
    """Columns by whose values runs are told apart, too."""

    @contextmanager
    def rows_of(self, case: Case, *kept: RowSink) -> Iterator[RowSink | None]:
        """Take the rows of a case, into unfinished files and `kept`; None where nobody wants any."""
        with ExitStack() as stack:
            sinks = [*kept]
            for path in self._paths(case):
                made = SINKS[path.suffix.removeprefix(".")](_unfinished(path))
                stack.enter_context(made)
                sinks.append(made)
            yield _to_all(sinks) if sinks else None

    def begin(self, traces: Sequence[Path], made: Sequence[Case]) -> None:
        """Make the directory; raise SimulationError if a file of rows would take the place of a trace."""
        kept = {trace.resolve() for trace in traces}
        for path in (path for case in made for path in [*self._paths(case), *self._mark_of(case)]):
            if path.resolve() in kept:
                raise SimulationError(f"--out {self.directory} would overwrite {path}: choose another one.")
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)

    def keep(self, case: Case, kept: Kept) -> None:
        """Give the files of a case that is over their names."""
        for mark in self._mark_of(case):
            mark.unlink(missing_ok=True)
            for path in self._paths(case):
                _unfinished(path).replace(path)
            _write(mark, msgspec.json.encode(kept))

    def kept_of(self, case: Case, mark: str) -> Kept | None:
        """Return what an earlier command has kept of a case, if it is to be taken and is of this mark."""
        for path in self._mark_of(case) if self.resume and not self.kept else ():
            try:
                kept = msgspec.json.decode(path.read_bytes(), type=Kept)
            except (OSError, msgspec.DecodeError):
                continue
            there = all(rows.is_file() for rows in self._paths(case))
            if kept.mark == mark and there and set(self.by) <= set(kept.grouped):
                return kept
        return None

    def write_summary(self, document: Summary) -> None:
        """Write all figures, in the place of those of an earlier command."""
        if self.directory is not None:
            text = msgspec.json.format(msgspec.json.encode(document), indent=2)
            (self.directory / REPORT).unlink(missing_ok=True)  # An earlier one is of other figures.
            _write(self.directory / "summary.json", text + b"\n")

    def write_tables(self, tables: Mapping[str, RowTable]) -> None:
        """Write tables as CSV, by the names of their files."""
        if self.directory is not None:
            for name, table in tables.items():
                _write(self.directory / name, "".join(table.to_csv()).encode())

    def write_report(self, page: str) -> None:
        """Write the report."""
        if self.directory is not None:
            _write(self.directory / REPORT, page.encode())

    def discard(self, made: Sequence[Case]) -> None:
        """Remove what is unfinished."""
        for case in made:
            for path in self._paths(case):
                _unfinished(path).unlink(missing_ok=True)

    def others(self, made: Sequence[Case]) -> str:
        """Name rows in the directory that an earlier command wrote; "" where there are none."""
        if self.directory is None:
            return ""
        ours = {path.name for case in made for path in self._paths(case)}
        names = sorted(
            path.name for path in self.directory.glob("*.csv") if path.name not in ours and _has_rows(path)
        )
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        return ", ".join(names[:SHOWN_MAX]) + more

    def _mark_of(self, case: Case) -> list[Path]:
        return [self.directory / f"{case.stem}.run.json"] if self.directory else []

    def _paths(self, case: Case) -> list[Path]:
        return [self.directory / f"{case.stem}.{form}" for form in self.forms] if self.directory else []


def _has_rows(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline(LINE_MAX).decode("utf-8", "replace").strip() == ",".join(COLUMNS)


def _write(path: Path, data: bytes) -> None:
    beside = _unfinished(path)
    beside.write_bytes(data)
    beside.replace(path)


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)


def _to_all(sinks: Sequence[RowSink]) -> RowSink:
    def write(task: Task, outcome: Outcome) -> None:
        for sink in sinks:
            sink(task, outcome)

    return write
