"""Where a command writes: rows of tasks beside the document and the report.

Law: until all runs are over, rows are in files that are called unfinished; an earlier command's files stay as
they were if this one is ended, fails, or finds the disk full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from replkernel_scheduler.sim.cases import Case
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.figures import RowSink
from replkernel_scheduler.sim.parquet_rows import ParquetRows
from replkernel_scheduler.sim.rows import COLUMNS, Rows
from replkernel_scheduler.sim.summary import Summary
from replkernel_scheduler.sim.task import Outcome, Task

SINKS: dict[str, Callable[[Path], Rows | ParquetRows]] = {"csv": Rows, "parquet": ParquetRows}
UNFINISHED = ".unfinished"
SHOWN_MAX = 3
LINE_MAX = 1024


class Output(msgspec.Struct, frozen=True):
    """Where rows of tasks go, if anywhere, and in which forms."""

    directory: Path | None
    forms: tuple[str, ...]
    kept: bool = False
    """Rows are kept in memory, too."""

    @contextmanager
    def rows_of(self, case: Case, kept: RowSink | None = None) -> Iterator[RowSink | None]:
        """Take the rows of a case, into unfinished files and `kept`; None where nobody wants any."""
        with ExitStack() as stack:
            sinks: list[RowSink] = [] if kept is None else [kept]
            for path in self._paths(case):
                made = SINKS[path.suffix.removeprefix(".")](_unfinished(path))
                stack.enter_context(made)
                sinks.append(made)
            yield _to_all(sinks) if sinks else None

    def begin(self, traces: Sequence[Path], made: Sequence[Case]) -> None:
        """Make the directory; raise SimulationError if a file of rows would take the place of a trace."""
        kept = {trace.resolve() for trace in traces}
        for path in (path for case in made for path in self._paths(case)):
            if path.resolve() in kept:
                raise SimulationError(f"--out {self.directory} would overwrite {path}: choose another one.")
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)

    def keep(self, case: Case) -> None:
        """Give the files of a case their names."""
        for path in self._paths(case):
            _unfinished(path).replace(path)

    def write_summary(self, document: Summary) -> None:
        """Write all figures, in the place of those of an earlier command."""
        if self.directory is not None:
            text = msgspec.json.format(msgspec.json.encode(document), indent=2)
            _write(self.directory / "summary.json", text + b"\n")

    def write_report(self, page: str) -> None:
        """Write the report."""
        if self.directory is not None:
            _write(self.directory / "report.html", page.encode())

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
