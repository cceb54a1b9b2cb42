"""What runs have shown, for Python: figures by name, rows of tasks, plots, and a view in notebooks.

Law: it computes nothing anew. A figure's name is its path in `summary.json`, and says its unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import overload

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.fairness import integral_of
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.plots import Plots, SweepPlots
from replkernel_scheduler.sim.row_table import RowsInMemory, RowTable
from replkernel_scheduler.sim.seeds import figures_of, long_form, over_seeds
from replkernel_scheduler.sim.summary import RunSummary, Summary
from replkernel_scheduler.sim.table import COLUMNS as SHOWN
from replkernel_scheduler.sim.table import table
from replkernel_scheduler.sim.views import by_column, jain, waiting


class Result:
    """One run. `summary` has its figures by name: `result.summary["cells.delay_s.p95"]`."""

    def __init__(self, title: str, run: RunSummary, picture: Picture, rows: RowsInMemory | None) -> None:
        """Keep the parts."""
        self.title, self.run, self.picture, self._rows = title, run, picture, rows
        self.policy = run.policy
        self.setting = dict(run.setting)
        self.summary: Mapping[str, float] = figures_of(run)
        self.plot = Plots({title: self})

    @property
    def cells(self) -> RowTable:
        """Return a row for each cell: when it was submitted, bound to GPUs, started, over; where; whose."""
        return self._kept().cells

    @property
    def jobs(self) -> RowTable:
        """Return a row for each job, with the trace's own columns: user, queue, nodes, requested time."""
        return self._kept().jobs

    def by(self, column: str) -> RowTable:
        """Return a row for each user (`by("user")`), size (`by("gpus")`) or other: waits, slowdown, work."""
        gpu_seconds = integral_of(self.picture.provisioned, self.picture.step_s)
        return by_column(self._served(), column, gpu_seconds)

    def jain(self) -> float:
        """Return Jain's index of users' mean slowdown: 1 if all are alike, 1 / users if one is slowed."""
        return jain(self._served())

    def waiting(self) -> RowTable:
        """Return how many wait for GPUs, at each time at which that changes."""
        return waiting(self._served())

    def _served(self) -> RowTable:
        """Return the rows of jobs, or of cells where there are no jobs."""
        return self.jobs if self.jobs.count else self.cells

    def _kept(self) -> RowsInMemory:
        if self._rows is None:
            raise SimulationError(f"{self.title}: rows were not kept. Play it with rows=True.")
        return self._rows

    def __repr__(self) -> str:
        """Return its title and what was served."""
        return f"<{self.title}: {self.run.cells.served:,} cells, {self.run.jobs.served:,} jobs served>"

    def _repr_html_(self) -> str:
        lines = "".join(
            [
                f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
                for name, column in SHOWN.items()
                if (text := column(self.run)) is not None
            ]
        )
        return f"<table><caption>{escape(self.title)}</caption><tbody>{lines}</tbody></table>"


class Results(Sequence[Result]):
    """The runs of a sweep, in its order; `results["notebook"]` is the one of that title."""

    def __init__(self, document: Summary, runs: Sequence[Result]) -> None:
        """Keep the runs, and the document that has them all."""
        self.document, self._runs = document, tuple(runs)
        self.plot = SweepPlots({run.title: run for run in runs})

    def table(self) -> RowTable:
        """Return a row for each figure of each run: policy, what was swept, figure, value."""
        return long_form(self.document.runs)

    def over_seeds(self) -> RowTable:
        """Return each figure's mean over the seeds, and its 95 % interval (`low95` to `high95`)."""
        return over_seeds(self.document.runs)

    @overload
    def __getitem__(self, which: int | str) -> Result: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Result]: ...
    def __getitem__(self, which: int | str | slice) -> Result | Sequence[Result]:
        """Return a run by its place or its title."""
        if not isinstance(which, str):
            return self._runs[which]
        for run in self._runs:
            if run.title == which:
                return run
        raise KeyError(f"There is no run {which!r}; there are {', '.join(run.title for run in self._runs)}.")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._runs)

    def __repr__(self) -> str:
        """Return the table that the command prints."""
        return table(self.document)

    def _repr_html_(self) -> str:
        keys = list(dict.fromkeys(key for run in self._runs for key in run.setting))
        names = [name for name, column in SHOWN.items() if any(column(run.run) for run in self._runs)]
        head = "".join([f"<th>{escape(name)}</th>" for name in ("policy", *keys, *names)])
        body = ""
        for run in self._runs:
            texts = [run.policy, *(run.setting.get(key, "") for key in keys)]
            texts += [SHOWN[name](run.run) or "" for name in names]
            body += "<tr>" + "".join([f"<td>{escape(text)}</td>" for text in texts]) + "</tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
