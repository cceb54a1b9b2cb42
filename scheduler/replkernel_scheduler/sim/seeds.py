"""The figures of many runs as tables in long form: one row for each figure of each run, and over all seeds.

Law: it computes nothing but the mean over seeds and its 95 % interval (Student's t); a figure's name is its
path in `summary.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

import msgspec

from replkernel_scheduler.sim.row_table import RowTable
from replkernel_scheduler.sim.summary import RunSummary

TEXTS = ("policy", "setting", "whys")
"""What a summary has beside figures."""
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5th percentile of Student's t, by degrees of freedom from 1 on."""
Z_975 = 1.959964
SEED = "seed"


class Interval(NamedTuple):
    """A mean of so many samples, and the 95 % interval about it; None of a single one."""

    seeds: int
    mean: float
    low: float | None
    high: float | None


def figures_of(run: RunSummary) -> dict[str, float]:
    """Return a run's figures by name; what it does not have is left out."""
    parts = msgspec.to_builtins(run)
    return dict(_flat("", {name: part for name, part in parts.items() if name not in TEXTS}))


def _flat(before: str, parts: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in parts.items():
        if isinstance(value, dict):
            yield from _flat(f"{before}{name}.", value)
        elif value is not None:
            yield f"{before}{name}", value


def interval(samples: Sequence[float]) -> Interval:
    """Return the mean and its interval."""
    count, mean = len(samples), fmean(samples)
    if count == 1:
        return Interval(count, mean, None, None)
    half = _t_975(count - 1) * stdev(samples) / sqrt(count)
    return Interval(count, mean, mean - half, mean + half)


def _t_975(freedom: int) -> float:
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    return Z_975 + (Z_975**3 + Z_975) / (4 * freedom)  # Good to 0.001 from here on.


def against(
    runs: Iterable[tuple[str, Mapping[str, str], Mapping[str, float]]], key: str, figure: str
) -> dict[str, list[tuple[str, Interval]]]:
    """Return a figure for each value of a swept key, by what else tells runs apart.

    A run is its policy, its setting and its figures. Those that only seeds tell apart are one point.
    """
    samples: dict[str, dict[str, list[float]]] = {}
    for policy, setting, figures in runs:
        pairs = [pair.partition("=") for pair in policy.split(",")[1:]]
        about = {name: value for name, _, value in pairs} | dict(setting)
        if key not in about or figure not in figures:
            continue
        value = about.pop(key)
        if key != SEED:
            about.pop(SEED, None)
        name = " ".join([policy.partition(",")[0], *(f"{k}={v}" for k, v in about.items())])
        samples.setdefault(name, {}).setdefault(value, []).append(figures[figure])
    return {
        name: [(value, interval(found)) for value, found in values.items()]
        for name, values in samples.items()
    }


def swept_keys(runs: Sequence[RunSummary]) -> list[str]:
    """Return what was swept besides seeds, with more than one value."""
    values: dict[str, set[str]] = {}
    for run in runs:
        for key, value in run.setting.items():
            values.setdefault(key, set()).add(value)
        for pair in run.policy.split(",")[1:]:
            name, sign, value = pair.partition("=")
            if sign:
                values.setdefault(name, set()).add(value)
    return [key for key, found in values.items() if key != SEED and len(found) > 1]


def long_form(runs: Sequence[RunSummary]) -> RowTable:
    """Return a row for each figure of each run: policy, what was swept, figure, value."""
    keys = _keys(runs)
    made = RowTable({"policy": str, **dict.fromkeys(keys, str), "figure": str, "value": float})
    for run in runs:
        about = (run.policy, *(run.setting.get(key) for key in keys))
        for name, value in figures_of(run).items():
            made.add((*about, name, float(value)))
    return made


def over_seeds(runs: Sequence[RunSummary]) -> RowTable:
    """Return a row for each figure of runs that only seeds tell apart: how many, mean, 95 % interval."""
    keys = [key for key in _keys(runs) if key != SEED]
    samples: dict[tuple[str | None, ...], list[float]] = {}
    for run in runs:
        about = (run.policy, *(run.setting.get(key) for key in keys))
        for name, value in figures_of(run).items():
            samples.setdefault((*about, name), []).append(float(value))
    made = RowTable(
        {"policy": str, **dict.fromkeys(keys, str), "figure": str,
         "seeds": int, "mean": float, "low95": float, "high95": float}
    )  # fmt: skip
    for about, values in samples.items():
        made.add((*about, *interval(values)))
    return made


def tables_of(runs: Sequence[RunSummary]) -> dict[str, RowTable]:
    """Return the tables of a command by the names of their files; that over seeds where there are several."""
    tables = {"figures.csv": long_form(runs)}
    if len({run.setting.get(SEED) for run in runs}) > 1:
        tables["seeds.csv"] = over_seeds(runs)
    return tables


def _keys(runs: Sequence[RunSummary]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.setting))
