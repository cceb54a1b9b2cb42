"""A trace in Python: recorded files, rows that are in memory, made sessions, or one that resembles another.

Law: it is read when it is played, and as often as that; rows in memory are a file in a directory of the
trace's own, which goes with it, so all ways to a trace are one, also for processes side by side.
"""

from __future__ import annotations

import copy
import csv
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from replkernel_scheduler.sim import alike, batch, drawing, forms, summary, workload_file
from replkernel_scheduler.sim.batch import BatchPlan, Kind
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.loaders.own_csv import checked_columns
from replkernel_scheduler.sim.mix import Mix, mix_named
from replkernel_scheduler.sim.trace_picture import TracePicture, trace_picture
from replkernel_scheduler.sim.window import Window
from replkernel_scheduler.sim.workers import Source
from replkernel_scheduler.sim.workload import PLANS


class Trace:
    """What is to be played: `Trace("cells.csv")`, `Trace.of_rows(frame)`, `Trace.made(hours=4)`.

    `form` names the form where the file does not say it; with `skip_bad` rows that cannot be are left out.
    `gpu_mix` draws the GPUs of each session: `"1=50,4=30,8=20"`, or `"template"`.
    """

    _whole: Trace | None = None
    """What this is a window of: its files are there as long as that is."""

    def __init__(
        self,
        *paths: str | Path,
        form: str | None = None,
        columns: Mapping[str, str] | None = None,
        skip_bad: bool = False,
        gpu_mix: str | None = None,
    ) -> None:
        """Take files of recorded work; several are merged.

        `columns` says what the columns of a CSV file are called there, such as `{"arrival_s": "submitted",
        "duration_s": "ended-submitted", "job": "#"}`: `-` is a difference, `#` the number of the line.
        """
        if not paths:
            raise SimulationError("A trace is of one file or more: Trace('cells.csv').")
        if form is not None and form not in forms.FORMS:
            raise SimulationError(f"There is no form {form!r}: there are {', '.join(forms.FORMS)}.")
        mix = None if gpu_mix is None else _mix(gpu_mix)
        named = checked_columns((columns or {}).items())
        self.source = Source(tuple(map(Path, paths)), form, skip_bad, mix, columns=named)

    def window(self, from_s: float = 0.0, until_s: float | None = None, load: float = 1.0) -> Trace:
        """Return the part from `from_s` up to `until_s` after its first record.

        With `load=1.2` it comes 1.2 times as fast; what each task takes stays as it is.
        """
        if from_s < 0 or not load > 0 or (until_s is not None and until_s <= from_s):
            raise SimulationError("A window begins at 0 or later, ends after that, and its load is above 0.")
        if self.source.window != Window():
            raise SimulationError("This is a part of a trace already: take the window of the whole one.")
        part = copy.copy(self)
        part.source = msgspec.structs.replace(self.source, window=Window(from_s, until_s, load))
        part._whole = self
        return part

    @classmethod
    def of_rows(cls, rows: object, *, gpu_mix: str | None = None) -> Trace:
        """Take a table with the columns of the simulator's own form, for cells or for jobs.

        That is a pandas or Polars DataFrame, an Arrow table, or mappings (`{"job": "a", "arrival_s": 0,
        "duration_s": 60, "gpus": 2}`), one for each row.
        """
        made = _rows(rows)
        if not made:
            raise SimulationError("There are no rows: a trace has one or more.")
        directory = Path(tempfile.mkdtemp(prefix="replkernel-trace-"))
        path = directory / "rows.csv"
        names = list(dict.fromkeys(name for row in made for name in row))
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(made)
        return cls._within(directory, path, gpu_mix)

    @classmethod
    def made(
        cls, like: str = "17.5h", *, seed: int = 0, gpu_mix: str | None = None, **changes: object
    ) -> Trace:
        """Make sessions of people who train models, as `replkernel workload` does.

        `like` is the published excerpt to begin with; `changes` are what its options change (`hours=4`,
        `sessions=((0, 0), (4, 20))`).
        """
        if like not in PLANS:
            raise SimulationError(f"There is no {like!r} to be like: there are {', '.join(PLANS)}.")
        try:
            plan = msgspec.structs.replace(PLANS[like], **changes)
        except TypeError as error:
            known = ", ".join(PLANS[like].__struct_fields__)
            raise SimulationError(f"A workload has {known}: {error}.") from error
        records, achieved = workload_file.made(plan, seed, None)
        directory = Path(tempfile.mkdtemp(prefix="replkernel-trace-"))
        path = directory / f"like-{like}.csv"
        workload_file.write(path, workload_file.lines(records, plan, achieved))
        return cls._within(directory, path, gpu_mix)

    @classmethod
    def made_jobs(cls, kind: Kind = "poisson", *, seed: int = 0, **changes: Any) -> Trace:
        """Make batch jobs, as `replkernel workload --jobs` does: `poisson`, `diurnal` or `lublin`.

        `changes` are what its options change (`hours=24`, `per_hour=200`, `widest=512`).
        """
        try:
            plan = BatchPlan(kind=kind, **changes)
        except TypeError as error:
            known = ", ".join(BatchPlan.__struct_fields__)
            raise SimulationError(f"Batch jobs have {known}: {error}.") from error
        if kind not in batch.KINDS:
            raise SimulationError(f"There are no jobs {kind!r}: there are {', '.join(batch.KINDS)}.")
        jobs = batch.batch(plan, seed)
        directory = Path(tempfile.mkdtemp(prefix="replkernel-trace-"))
        path = directory / f"{kind}.csv"
        workload_file.write(path, batch.lines(jobs, plan, seed))
        return cls._within(directory, path, None)

    def alike(self, *, seed: int = 0, times: float = 1.0) -> Trace:
        """Make one that resembles it, as `replkernel workload --like TRACE` does; `times` as many come.

        Arrivals, GPUs, run times and think times are as often as here; no name and no record is taken over.
        """
        if seed < 0 or not 0.01 <= times < 1e9:
            raise SimulationError("A seed is a whole number from 0 on, and times a number from 0.01 on.")
        with self.source.spool(0) as spool:
            made = alike.alike(spool, seed, times)
        directory = Path(tempfile.mkdtemp(prefix="replkernel-trace-"))
        path = directory / "alike.csv"
        workload_file.write(path, alike.lines(made))
        return self._within(directory, path, None)

    @classmethod
    def _within(cls, directory: Path, path: Path, gpu_mix: str | None) -> Trace:
        """Return the trace of a file whose directory goes when the trace does."""
        trace = cls(path, gpu_mix=gpu_mix)
        weakref.finalize(trace, shutil.rmtree, directory, ignore_errors=True)
        return trace

    def figures(self) -> dict[str, float]:
        """Read it, and return what is in it: sessions, cells, jobs, span, and the GPU-hours of its work."""
        with self.source.spool(0) as spool:
            made: dict[str, float] = msgspec.to_builtins(summary.of_trace(spool))
            return made

    @property
    def plot(self) -> TracePlots:
        """Return its plots: `trace.plot.load()`, `trace.plot.cdf("duration")`."""
        return TracePlots(self)

    def picture(self) -> TracePicture:
        """Read it, and return what it looks like: courses over time, and distributions by their quantiles."""
        with self.source.spool(0) as spool:
            if not len(spool):
                raise SimulationError(f"{self!r}: there is nothing in it.")
            return trace_picture(spool, spool.first)

    def __repr__(self) -> str:
        """Return the names of its files."""
        return f"Trace({', '.join(repr(str(path)) for path in self.source.paths)})"


class TracePlots:
    """Each takes the `axes` of matplotlib to draw on (None: new ones), and returns them."""

    def __init__(self, trace: Trace) -> None:
        """Draw this trace, which is read for each plot."""
        self._trace = trace

    def load(self, axes: object = None) -> object:
        """Draw how many sessions are open over time, and how many cells or jobs run."""
        return drawing.draw_load(drawing.new_axes(axes), self._trace.picture())

    def times(self, axes: object = None) -> object:
        """Draw the distributions of run times, of times from one to the next, and of think times."""
        return drawing.draw_times(drawing.new_axes(axes), self._trace.picture())

    def duty(self, axes: object = None) -> Any:
        """Draw the share of sessions that compute for no more than a share of their lives."""
        duty = self._trace.picture().duty
        if not duty:
            raise SimulationError(f"{self._trace!r} has no sessions: jobs compute all their lives.")
        return drawing.draw_distribution(
            drawing.new_axes(axes), {"sessions": duty}, "share of its life that a session computes (%)"
        )


def _mix(text: str) -> Mix:
    mix = mix_named(text)
    if mix is None:
        raise SimulationError(f"{text!r} is no mix, such as 1=50,4=30,8=20, or template.")
    return mix


def _is_missing(value: object) -> bool:
    """Tell NaN, NaT and pandas' NA, which is neither like itself nor not."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True


def _rows(rows: object) -> list[Mapping[str, Any]]:
    """Return a table's rows as mappings, whichever library it is of."""
    for name in ("to_pylist", "to_dicts"):  # Arrow's, Polars'
        if hasattr(rows, name):
            found: list[Mapping[str, Any]] = getattr(rows, name)()
            return found
    if hasattr(rows, "to_dict"):  # pandas'
        return [
            {name: None if _is_missing(value) else value for name, value in row.items()}
            for row in rows.to_dict("records")
        ]
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Mapping):
        raise SimulationError("A trace is made of a table's rows: of a DataFrame, or a list of mappings.")
    return [dict(row) for row in rows]
