"""What things cost, from a file: as somebody has written it down, or as a live scheduler's journal shows it.

A file is TOML with a table for each cost that is other than usual, `[state_read]` with `p50_s` and `p99_s`,
`mean_s` and `sigma_s`, or `low_s` and `high_s`. Law: a journal tells what a cell's GPUs were held for beside
its run, and that its kernels ran before their first cell came; everything else stays as it is.
"""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from replkernel_scheduler.sim.costs import Costs, LogNormal, Measured, Normal, Time, Uniform
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.types import CellUsage

KINDS: tuple[type[Normal | LogNormal | Uniform], ...] = (Normal, LogNormal, Uniform)
QUANTILES = 20
BUSY_S = 5.0
MOST_S = 1e7


def costs_of(path: Path) -> Costs:
    """Return the costs of a TOML file; raise SimulationError that says what cannot be."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SimulationError(f"{path} cannot be read as a file of costs (TOML): {error}.") from error
    known = Costs.__struct_fields__
    made = {}
    for name, table in document.items():
        if name not in known:
            raise SimulationError(f"{path}: there is no cost {name!r}; there are {', '.join(known)}.")
        made[name] = _time(path, name, table)
    return Costs(**made)


def costs_from(path: Path) -> Costs:
    """Return what the cells of a live scheduler's journal cost beside their runs; raise SimulationError."""
    try:
        with closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
        ) as database:
            rows = [row for (row,) in database.execute("SELECT usage FROM replkernel_usage")]
            usages = [msgspec.json.decode(row, type=CellUsage) for row in rows]
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        raise SimulationError(f"{path} cannot be read as a scheduler's journal: {error}.") from error
    beside = sorted(
        max(0.0, usage.leased_s - usage.busy_s) / 2 for usage in usages if usage.busy_s and usage.gpus
    )
    if not beside:
        raise SimulationError(f"{path} has no cells that had GPUs: it does not show what they cost.")
    half = Measured(
        tuple(beside[round(place * (len(beside) - 1) / QUANTILES)] for place in range(QUANTILES + 1))
    )
    return Costs(elect=Uniform(0.0, 0.0), load=half, unload=half, session_start=Normal(0.0))


def _check_order(path: Path, name: str, made: Normal | LogNormal | Uniform) -> None:
    """Raise SimulationError for a distribution whose larger value is the smaller one."""
    low, high, words = 0.0, 0.0, ""
    if isinstance(made, LogNormal):
        low, high, words = made.p50_s, made.p99_s, "p99_s of {1:g} below its p50_s of {0:g}"
    elif isinstance(made, Uniform):
        low, high, words = made.low_s, made.high_s, "high_s of {1:g} below its low_s of {0:g}"
    if high < low:
        raise SimulationError(f"{path}: {name} has a {words.format(low, high)}: exchange them.")


def _time(path: Path, name: str, table: Mapping[str, Any]) -> Time:
    """Return the distribution that a table says."""
    for kind in KINDS:
        try:
            made = msgspec.convert(table, kind, strict=True)
        except msgspec.ValidationError:
            continue
        fields = set(kind.__struct_fields__)
        values = [getattr(made, field) for field in fields]
        least = 1e-9 if kind is LogNormal else 0.0
        if set(table) <= fields and all(least <= value <= MOST_S for value in values):
            _check_order(path, name, made)
            return made
    forms = "mean_s (and sigma_s), p50_s and p99_s, or low_s and high_s"
    raise SimulationError(f"{path}: {name} is not told by {forms}, all in seconds.")
