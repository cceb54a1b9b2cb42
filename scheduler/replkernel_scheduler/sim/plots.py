"""The plots of a result, by what is on them: `result.plot.cdf("wait")`.

Law: it chooses what is drawn; `drawing.py` draws. Without matplotlib it says what to install.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from replkernel_scheduler.sim import drawing
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.seeds import against

MEASURES: dict[str, tuple[tuple[str, str], ...]] = {
    "wait": (("cells", "delay_s"), ("jobs", "wait_s")),
    "completion": (("cells", "completion_s"), ("jobs", "job_completion_s")),
    "slowdown": (("jobs", "slowdown"),),
    "bounded slowdown": (("jobs", "bounded_slowdown"),),
    "fairness": (("jobs", "fairness"),),
}
"""What can be drawn: of cells until code runs and until the reply, of jobs until GPUs and until the end."""
AXES = {
    "wait": "wait (s)",
    "completion": "completion time (s)",
    "slowdown": "(waiting + run) / run alone",
    "bounded slowdown": "completion / run alone, or 10 s if that is longer",
    "fairness": "completion / completion on an equal share (fair: up to 1)",
}


class Pictured(Protocol):
    """A run that can be drawn."""

    policy: str
    setting: dict[str, str]
    summary: Mapping[str, float]
    picture: Picture


class Plots:
    """Each takes the `axes` of matplotlib to draw on (None: new ones), and returns them."""

    def __init__(self, runs: Mapping[str, Pictured]) -> None:
        """Draw these runs, by their titles."""
        self._runs = runs

    def cdf(self, measure: str = "wait", axes: object = None) -> object:
        """Draw the share of cells and of jobs that took no longer.

        `wait`, `completion`; of jobs also `slowdown`, `bounded slowdown` and `fairness`.
        """
        if measure not in MEASURES:
            raise SimulationError(f"There is no {measure!r} to draw: there are {', '.join(MEASURES)}.")
        found = {
            (title, what): quantiles
            for title, run in self._runs.items()
            for what, name in MEASURES[measure]
            if (quantiles := getattr(run.picture, name))
        }
        if not found:
            raise SimulationError(f"No run has figures of {measure}: nothing was served that has them.")
        both = len({what for _, what in found}) > 1
        samples = {f"{title}, {what}" if both else title: values for (title, what), values in found.items()}
        return drawing.draw_distribution(drawing.new_axes(axes), samples, AXES[measure])

    def gpus(self, axes: object = None) -> Any:
        """Draw the GPUs of hosts over time (held by sessions, where they hold them), and those in use."""
        return drawing.draw_use(drawing.new_axes(axes), self._pictures())

    def waiting(self, axes: object = None) -> Any:
        """Draw how many cells and jobs wait for GPUs over time."""
        return drawing.draw_over_time(drawing.new_axes(axes), self._pictures(), "waiting", "waiting")

    def cost(self, axes: object = None) -> Any:
        """Draw what hosts cost so far, over time."""
        return drawing.draw_over_time(drawing.new_axes(axes), self._pictures(), "cost", "cost so far")

    def _pictures(self) -> dict[str, Picture]:
        return {title: run.picture for title, run in self._runs.items()}


class SweepPlots(Plots):
    """Of several runs: also a figure against what was swept."""

    def against(self, key: str, figure: str, axes: object = None) -> object:
        """Draw a figure against the values of a swept key, a line for each policy and other setting.

        Runs that only their seeds tell apart are one point: their mean, in its 95 % interval.
        """
        runs = [(run.policy, run.setting, run.summary) for run in self._runs.values()]
        lines = against(runs, key, figure)
        if not lines:
            raise SimulationError(f"No run has both a swept {key!r} and the figure {figure!r}.")
        return drawing.draw_against(drawing.new_axes(axes), lines, key, figure)
