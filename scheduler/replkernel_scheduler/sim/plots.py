"""The plots of a result, by what is on them: `result.plot.cdf("wait")`.

Law: it chooses what is drawn; `drawing.py` draws. Without matplotlib it says what to install.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from replkernel_scheduler.sim import drawing
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.picture import Picture

MEASURES: dict[str, tuple[tuple[str, str], ...]] = {
    "wait": (("cells", "delay_s"), ("jobs", "wait_s")),
    "completion": (("cells", "completion_s"), ("jobs", "job_completion_s")),
    "slowdown": (("jobs", "slowdown"),),
}
"""What can be drawn: of cells until code runs and until the reply, of jobs until GPUs and until the end."""
AXES = {
    "wait": "wait (s)",
    "completion": "completion time (s)",
    "slowdown": "(waiting + run) / run alone",
}


class Pictured(Protocol):
    """A run that has a picture."""

    @property
    def picture(self) -> Picture:
        """Return it."""
        ...


class Plots:
    """Each takes the `axes` of matplotlib to draw on (None: new ones), and returns them."""

    def __init__(self, runs: Mapping[str, Pictured]) -> None:
        """Draw these runs, by their titles."""
        self._runs = runs

    def cdf(self, measure: str = "wait", axes: Any = None) -> Any:
        """Draw the share of cells and of jobs that took no longer: `wait`, `completion` or `slowdown`."""
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

    def gpus(self, axes: Any = None) -> Any:
        """Draw the GPUs of hosts over time (held by sessions, where they hold them), and those in use."""
        pictures = {title: run.picture for title, run in self._runs.items()}
        return drawing.draw_use(drawing.new_axes(axes), pictures)
