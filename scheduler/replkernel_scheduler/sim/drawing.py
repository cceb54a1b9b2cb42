"""The plots of a report as SVG texts.

Law: the only module that knows matplotlib, which is loaded when something is drawn; the same numbers give the
same bytes. Texts are text, never markup or formulas.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.picture import QUANTILES, Picture
from replkernel_scheduler.sim.seeds import Interval
from replkernel_scheduler.sim.summary import MoneyFigures
from replkernel_scheduler.sim.way import ORACLE

STYLE = {
    "svg.hashsalt": "replkernel", "svg.fonttype": "none", "text.parse_math": False, "font.size": 9.0,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "legend.frameon": False,
}  # fmt: skip
WIDTH_IN, HEIGHT_IN = 9.0, 3.2
SHORTEST_S = 0.01
"""Shorter times are drawn as this one, for the axis is logarithmic."""
HOUR_S = 3600.0
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
ABOVE = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 3}
Pictures = Mapping[str, Picture]


def needs_matplotlib() -> str | None:
    """Return what to install where plots cannot be drawn."""
    try:
        _figure_class()
    except SimulationError as error:
        return str(error)
    return None


def _figure_class() -> tuple[Any, Any]:
    try:
        import matplotlib as library
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SimulationError("Plots are drawn with matplotlib: pip install 'replkernel[sim]'.") from error
    return library, Figure


def _drawn(draw: Callable[[Any], None], panels: int = 1) -> str:
    """Return what `draw` puts on the axes of a figure with panels below each other."""
    library, figure_class = _figure_class()
    with library.rc_context(STYLE):
        figure = figure_class(figsize=(WIDTH_IN, HEIGHT_IN * panels), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=panels > 1, squeeze=False)[:, 0]
        draw(axes[0] if panels == 1 else list(axes))
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=NO_METADATA)
    text = file.getvalue()
    return text[text.index("<svg") :]


def new_axes(axes: Any = None) -> Any:
    """Return `axes`, or new ones that notebooks show; raise SimulationError without matplotlib."""
    if axes is None:
        _figure_class()
        from matplotlib import pyplot

        _, axes = pyplot.subplots(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    return axes


def gpus_over_time(pictures: Pictures, oracle: Picture) -> str:
    """Draw the GPUs of hosts (of sessions, where they hold them), and what cells and jobs alone need."""

    def draw(axes: Any) -> None:
        axes.fill_between(
            _hours(oracle, oracle.provisioned), oracle.provisioned, step="post", alpha=0.3, color="grey",
            label="oracle",
        )  # fmt: skip
        for name, picture in pictures.items():
            if name == ORACLE.name:
                continue
            held = picture.reserved or picture.provisioned
            label = f"{name} (reserved)" if picture.reserved else name
            axes.step(_hours(picture, held), held, where="post", label=label, linewidth=1)
        axes.set(xlabel="hours", ylabel="GPUs", ylim=(0, None))
        axes.legend(**ABOVE)

    return _drawn(draw)


def distribution(samples: Mapping[str, Sequence[float]], what: str) -> str:
    """Draw, for each run, the share of cells or jobs that took no longer."""

    return _drawn(lambda axes: draw_distribution(axes, samples, f"{what} (s)"))


def draw_distribution(axes: Any, samples: Mapping[str, Sequence[float]], what: str) -> Any:
    """Draw it on axes, and return these."""
    shares = [place / QUANTILES for place in range(QUANTILES + 1)]
    for name, quantiles in samples.items():
        axes.step([max(SHORTEST_S, value) for value in quantiles], shares, where="post", label=name)
    axes.set(xlabel=what, ylabel="share", xscale="log", ylim=(0, 1.02))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.legend(**ABOVE)
    return axes


def draw_use(axes: Any, pictures: Pictures) -> Any:
    """Draw GPUs of hosts or sessions, and with the same colour, dotted, those that cells and jobs use."""
    for name, picture in pictures.items():
        held = picture.reserved or picture.provisioned
        what = "reserved" if picture.reserved else "hosts"
        line = axes.step(_hours(picture, held), held, where="post", label=f"{name}: {what}", linewidth=1)
        axes.step(
            _hours(picture, picture.committed), picture.committed, ":", where="post", linewidth=1,
            color=line[0].get_color(), label=f"{name}: in use",
        )  # fmt: skip
    axes.set(xlabel="hours", ylabel="GPUs", ylim=(0, None))
    axes.legend(**ABOVE)
    return axes


def draw_against(axes: Any, lines: Mapping[str, Sequence[tuple[str, Interval]]], key: str, what: str) -> Any:
    """Draw means against swept values, with their intervals; numbers stand where they belong."""
    values = list(dict.fromkeys(value for points in lines.values() for value, _ in points))
    numbers = [_number(value) for value in values]
    ordered = None not in numbers
    places = dict(zip(values, numbers if ordered else range(len(values)), strict=True))
    for name, points in lines.items():
        points = sorted(points, key=lambda point: places[point[0]])  # type: ignore[arg-type,return-value]
        across = [places[value] for value, _ in points]
        line = axes.plot(
            across, [found.mean for _, found in points], "o-", label=name, linewidth=1, markersize=3
        )
        low = [found.mean if found.low is None else found.low for _, found in points]
        high = [found.mean if found.high is None else found.high for _, found in points]
        axes.fill_between(across, low, high, color=line[0].get_color(), alpha=0.2, linewidth=0)
    if not ordered:
        axes.set_xticks(list(places.values()), values)
    axes.set(xlabel=key, ylabel=what)
    axes.legend(**ABOVE)
    return axes


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def subscription_over_time(pictures: Pictures) -> str:
    """Draw subscription ratios, and below them moves and hosts that come and go."""

    def draw(panels: Any) -> None:
        ratio, changes = panels
        for name, picture in pictures.items():
            line = ratio.step(
                _hours(picture, picture.subscription),
                picture.subscription,
                where="post",
                label=name,
                linewidth=1,
            )
            colour = line[0].get_color()
            for counts, style, what in (
                (picture.moves, "-", "moves"), (picture.added, "--", "hosts added"),
                (picture.released, ":", "hosts released"),
            ):  # fmt: skip
                if any(counts):
                    total, course = 0.0, []
                    for count in counts:
                        total += count
                        course.append(total)
                    changes.step(
                        _hours(picture, course), course, style, where="post", color=colour, linewidth=1,
                        label=f"{name}: {what}",
                    )  # fmt: skip
        ratio.set(ylabel="subscribed / (GPUs x R)", ylim=(0, None))
        changes.set(xlabel="hours", ylabel="so far", ylim=(0, None))
        for axes in panels:
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)

    return _drawn(draw, panels=2)


def money(runs: Mapping[str, MoneyFigures]) -> str:
    """Draw cost and revenue beside each other, with the margin."""

    def draw(axes: Any) -> None:
        places = range(len(runs))
        axes.barh([place - 0.2 for place in places], [run.cost for run in runs.values()], 0.4, label="cost")
        bars = axes.barh(
            [place + 0.2 for place in places], [run.revenue for run in runs.values()], 0.4, label="revenue"
        )
        margins = [f"margin {run.margin:.0%}" if run.margin is not None else "" for run in runs.values()]
        axes.bar_label(bars, margins, padding=3)
        axes.set_yticks(list(places), list(runs))
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set(xlabel="money")
        axes.legend(**ABOVE)

    return _drawn(draw)


def saved_by_interval(saved: Mapping[float, float]) -> str:
    """Draw the GPU-hours that kept state saves, by the interval after which idle sessions are ended."""

    def draw(axes: Any) -> None:
        axes.bar([f"{interval_s / 60:g} min" for interval_s in saved], list(saved.values()), 0.6)
        axes.set(xlabel="sessions are ended after idling for", ylabel="GPU-hours")

    return _drawn(draw)


def _hours(picture: Picture, course: Sequence[float]) -> list[float]:
    return [place * picture.step_s / HOUR_S for place in range(len(course))]
