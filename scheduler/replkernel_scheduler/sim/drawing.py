"""The plots of a report as SVG texts.

Law: the only module that knows matplotlib, which is loaded when something is drawn; the same numbers give the
same bytes. Texts are text, never markup or formulas.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.picture import QUANTILES, Picture
from replkernel_scheduler.sim.seeds import Interval
from replkernel_scheduler.sim.summary import MoneyFigures
from replkernel_scheduler.sim.trace_picture import TracePicture
from replkernel_scheduler.sim.way import ORACLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F6A00")
"""Okabe and Ito's, told apart by all eyes; lines that are equal in grey have other dashes, too."""
DASHES: tuple[Any, ...] = (
    "-",
    (0, (6, 1.5)),
    (0, (1, 1)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (3, 1)),
    (0, (8, 2, 2, 2)),
    "-",
    (0, (2, 2)),
)
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
SIGNS_BESIDE = 100
"""As many letters fit beside each other in a legend; more names are below each other."""
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


def _drawn(draw: Callable[[Any], object], panels: int = 1, height_in: float = HEIGHT_IN) -> str:
    """Return what `draw` puts on the axes of a figure with panels below each other."""
    library, figure_class = _figure_class()
    with library.rc_context(STYLE):
        figure = figure_class(figsize=(WIDTH_IN, height_in * panels), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=panels > 1, squeeze=False)[:, 0]
        draw(axes[0] if panels == 1 else list(axes))
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=NO_METADATA)
    text = file.getvalue()
    return text[text.index("<svg") :]


def new_axes(axes: object = None) -> Any:
    """Return `axes`, or new ones that notebooks show; raise SimulationError without matplotlib."""
    if axes is None:
        _figure_class()
        from matplotlib import pyplot

        _, axes = pyplot.subplots(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    return axes


def look_of(place: int) -> dict[str, Any]:
    """Return colour and dashes of a run by its place among others."""
    turn, colour = divmod(place, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[(place + turn) % len(DASHES)], "linewidth": 1.2}


def _legend(axes: Axes) -> None:
    """Put the names above the axes, in as many columns as there is room for."""
    names = axes.get_legend_handles_labels()[1]
    if names:
        columns = max(1, min(3, SIGNS_BESIDE // (max(map(len, names)) + 8)))
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return names without the words that all of them have: of `notebook,m=1 hosts=4` `m=1`, say."""
    words = [re.split("[, ]", name) for name in names]
    common = set.intersection(*map(set, words)) if len(names) > 1 else set()
    if not common:
        return {name: name for name in names}
    short = {
        name: " ".join(word for word in parts if word not in common) or name
        for name, parts in zip(names, words, strict=True)
    }
    return short if len(set(short.values())) == len(set(names)) else {name: name for name in names}


def gpus_over_time(pictures: Pictures, oracle: Picture) -> str:
    """Draw GPUs of hosts, those that sessions hold, and those in use, each on axes of their own."""
    runs = {name: picture for name, picture in pictures.items() if name != ORACLE.name}
    held = any(picture.reserved for picture in runs.values())
    kinds = [("provisioned", "GPUs of hosts"), ("committed", "GPUs in use")]
    kinds[1:1] = [("reserved", "GPUs held by sessions")] if held else []

    def draw(panels: Any) -> None:
        needed = oracle.provisioned
        for axes, (kind, what) in zip(panels, kinds, strict=True):
            axes.fill_between(
                _hours(oracle, needed), needed, step="post", alpha=0.3, color="grey", linewidth=0,
                label="oracle" if axes is panels[0] else None,
            )  # fmt: skip
            for place, (name, picture) in enumerate(runs.items()):
                course = getattr(picture, kind)
                if course:
                    label = name if axes is panels[0] else None
                    axes.step(_hours(picture, course), course, where="post", label=label, **look_of(place))
            axes.set(ylabel=what, ylim=(0, None))
        panels[-1].set(xlabel="hours")
        _legend(panels[0])

    return _drawn(draw, panels=len(kinds), height_in=2.6)


def over_time(pictures: Pictures, course: str, what: str) -> str:
    """Draw a course of each run."""
    return _drawn(lambda axes: draw_over_time(axes, pictures, course, what))


def draw_over_time(axes: Axes, pictures: Pictures, course: str, what: str) -> Any:
    """Draw it on axes, and return these."""
    for place, (name, picture) in enumerate(pictures.items()):
        values = getattr(picture, course)
        axes.step(_hours(picture, values), values, where="post", label=name, **look_of(place))
    axes.set(xlabel="hours", ylabel=what, ylim=(0, None))
    _legend(axes)
    return axes


def draw_load(axes: Axes, trace: TracePicture) -> Any:
    """Draw how many sessions are open, and how many cells or jobs run, on axes, and return these."""
    for place, (course, what) in enumerate(((trace.open, "sessions open"), (trace.running, "running"))):
        hours = [step * trace.step_s / HOUR_S for step in range(len(course))]
        if course:
            axes.step(hours, course, where="post", label=what, **look_of(place))
    axes.set(xlabel="hours", ylabel="at a time", ylim=(0, None))
    _legend(axes)
    return axes


def draw_times(axes: Axes, trace: TracePicture) -> Any:
    """Draw the distributions of what cells or jobs take and of the time between them, and return the axes."""
    of_sessions = bool(trace.open)
    samples = {
        "run time": trace.duration_s,
        "from a cell to the next" if of_sessions else "from a job to the next": trace.between_s,
        "thinking, from its end": trace.think_s,
    }
    return draw_distribution(axes, {name: found for name, found in samples.items() if found}, "seconds")


def of_trace(trace: TracePicture) -> dict[str, str]:
    """Return the plots of a trace, by their titles."""
    drawn = {
        "The trace: sessions, and what runs": _drawn(lambda axes: draw_load(axes, trace)),
        "The trace: run times, and times between": _drawn(lambda axes: draw_times(axes, trace)),
    }
    return drawn if trace.open else {title.replace("sessions, and ", ""): svg for title, svg in drawn.items()}


def distribution(samples: Mapping[str, Sequence[float]], what: str) -> str:
    """Draw, for each run, the share of cells or jobs that took no longer."""
    return _drawn(lambda axes: draw_distribution(axes, samples, what))


def draw_distribution(axes: Axes, samples: Mapping[str, Sequence[float]], what: str) -> Any:
    """Draw it on axes, and return these."""
    shares = [place / QUANTILES for place in range(QUANTILES + 1)]
    for place, (name, quantiles) in enumerate(samples.items()):
        values = [max(SHORTEST_S, value) for value in quantiles]
        axes.step(values, shares, where="post", label=name, **look_of(place))
    axes.set(xlabel=what, ylabel="share", xscale="log", ylim=(0, 1.02))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    _legend(axes)
    return axes


def draw_use(axes: Axes, pictures: Pictures) -> Any:
    """Draw GPUs of hosts or sessions, and with the same colour, dotted, those that cells and jobs use."""
    for place, (name, picture) in enumerate(pictures.items()):
        colour = COLOURS[place % len(COLOURS)]
        held = picture.reserved or picture.provisioned
        what = "reserved" if picture.reserved else "hosts"
        axes.step(
            _hours(picture, held), held, where="post", label=f"{name}: {what}", linewidth=1, color=colour
        )
        axes.step(
            _hours(picture, picture.committed), picture.committed, ":", where="post", linewidth=1,
            color=colour, label=f"{name}: in use",
        )  # fmt: skip
    axes.set(xlabel="hours", ylabel="GPUs", ylim=(0, None))
    _legend(axes)
    return axes


def draw_against(
    axes: Any, lines: Mapping[str, Sequence[tuple[str, Interval]]], key: str, what: str
) -> object:
    """Draw means against swept values, with their intervals; numbers stand where they belong."""
    values = list(dict.fromkeys(value for points in lines.values() for value, _ in points))
    numbers = [_number(value) for value in values]
    ordered = None not in numbers
    places = dict(zip(values, numbers if ordered else range(len(values)), strict=True))
    for number, (name, points) in enumerate(lines.items()):
        points = sorted(points, key=lambda point: places[point[0]])  # type: ignore[arg-type,return-value]
        across = [places[value] for value, _ in points]
        look = look_of(number)
        axes.plot(across, [found.mean for _, found in points], marker="o", label=name, markersize=3, **look)
        low = [found.mean if found.low is None else found.low for _, found in points]
        high = [found.mean if found.high is None else found.high for _, found in points]
        axes.fill_between(across, low, high, color=look["color"], alpha=0.2, linewidth=0)
    if not ordered:
        axes.set_xticks(list(places.values()), values)
    axes.set(xlabel=key, ylabel=what)
    _legend(axes)
    return axes


def swept(panels: Mapping[str, Mapping[str, Sequence[tuple[str, Interval]]]], key: str) -> str:
    """Draw several figures against a swept key, below each other, by what they are called."""

    def draw(drawn: Any) -> None:
        every = [drawn] if len(panels) == 1 else drawn
        for axes, (what, lines) in zip(every, panels.items(), strict=True):
            draw_against(axes, lines, "" if axes is not every[-1] else key, what)
            if axes is not every[0]:
                axes.get_legend().remove()

    return _drawn(draw, panels=len(panels), height_in=2.6)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def subscription_over_time(pictures: Pictures) -> str:
    """Draw subscription ratios, and below them moves and hosts that come and go."""
    counted = {"moves": "moves so far", "added": "hosts added so far", "released": "hosts released so far"}
    kinds = [kind for kind in counted if any(any(getattr(one, kind)) for one in pictures.values())]

    def draw(panels: Any) -> None:
        for place, (name, picture) in enumerate(pictures.items()):
            look = look_of(place)
            ratio = picture.subscription
            panels[0].step(_hours(picture, ratio), ratio, where="post", label=name, **look)
            for axes, kind in zip(panels[1:], kinds, strict=True):
                course = list(accumulate(getattr(picture, kind)))
                if any(course):
                    axes.step(_hours(picture, course), course, where="post", **look)
        panels[0].set(ylabel="subscribed / (GPUs x R)", ylim=(0, None))
        for axes, kind in zip(panels[1:], kinds, strict=True):
            axes.set(ylabel=counted[kind], ylim=(0, None))
        panels[-1].set(xlabel="hours")
        _legend(panels[0])

    return _drawn(lambda panels: draw(panels if kinds else [panels]), panels=1 + len(kinds), height_in=2.4)


def money_over_time(pictures: Pictures) -> str:
    """Draw the cost so far, and below it the margin so far."""

    def draw(panels: Any) -> None:
        for place, (name, picture) in enumerate(pictures.items()):
            hours, look = _hours(picture, picture.cost), look_of(place)
            panels[0].step(hours, picture.cost, where="post", label=name, **look)
            margins = [
                100 * (earned - paid) / earned if earned else float("nan")
                for paid, earned in zip(picture.cost, picture.revenue, strict=True)
            ]
            panels[1].step(hours, margins, where="post", **look)
        panels[0].set(ylabel="cost so far", ylim=(0, None))
        panels[1].set(xlabel="hours", ylabel="margin so far (%)", ylim=(-100, 100))
        _legend(panels[0])

    return _drawn(draw, panels=2, height_in=2.6)


def money(runs: Mapping[str, MoneyFigures]) -> str:
    """Draw cost and revenue beside each other, with the margin."""

    def draw(axes: Axes) -> None:
        places = range(len(runs))
        above, below = ([place + by for place in places] for by in (-0.2, 0.2))
        axes.barh(above, [run.cost for run in runs.values()], 0.4, label="cost", color=COLOURS[0])
        earned = [run.revenue for run in runs.values()]
        bars = axes.barh(below, earned, 0.4, label="revenue", color=COLOURS[4])
        margins = [f"margin {run.margin:.0%}" if run.margin is not None else "" for run in runs.values()]
        axes.bar_label(bars, margins, padding=3)
        axes.set_yticks(list(places), list(runs))
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set(xlabel="money")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
        _legend(axes)

    return _drawn(draw)


def saved_by_interval(saved: Mapping[float, float]) -> str:
    """Draw the GPU-hours that kept state saves, by the interval after which idle sessions are ended."""

    def draw(axes: Axes) -> None:
        axes.bar(
            [f"{interval_s / 60:g} min" for interval_s in saved], list(saved.values()), 0.6, color=COLOURS[0]
        )
        axes.set(xlabel="sessions are ended after idling for", ylabel="GPU-hours")

    return _drawn(draw)


def _hours(picture: Picture, course: Sequence[float]) -> list[float]:
    return [place * picture.step_s / HOUR_S for place in range(len(course))]
