"""A row of the suite, a course over time, a distribution, and the table that is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

COURSE_STEPS = 128
CURVE_POINTS = 100


@dataclass(frozen=True)
class Row:
    """A published figure (None: there is none) and ours, in `unit`; `why` they differ, or what it shows."""

    paper: str
    what: str
    published: float | None
    ours: float
    unit: str
    why: str = ""

    @property
    def difference(self) -> str:
        """Say how far off ours is: of shares in points, of all else in percent."""
        if self.published is None:
            return "-"
        if self.unit == "%":
            return f"{self.ours - self.published:+.1f} pt"
        return f"{(self.ours / self.published - 1) * 100:+.1f} %" if self.published else f"{self.ours:+g}"

    @property
    def kept(self) -> dict[str, Any]:
        """Return what is kept of it: digits beyond the sixth say nothing."""
        return asdict(self) | {"ours": float(f"{self.ours:.6g}")}


@dataclass(frozen=True)
class Course:
    """A quantity over a run, for a picture: means by steps of `step_s`."""

    paper: str
    what: str
    step_s: float
    values: tuple[float, ...]

    @property
    def kept(self) -> dict[str, Any]:
        """Return what is kept of it: at most COURSE_STEPS values, of one digit behind the point."""
        times = -(-len(self.values) // COURSE_STEPS)
        groups = [self.values[start : start + times] for start in range(0, len(self.values), times)]
        values = [round(sum(group) / len(group), 1) for group in groups]
        return asdict(self) | {"step_s": self.step_s * times, "values": values}


@dataclass(frozen=True)
class Curve:
    """A distribution, for a picture: its quantiles at equal distances, the least and the most among them."""

    paper: str
    what: str
    quantiles: tuple[float, ...]

    @property
    def kept(self) -> dict[str, Any]:
        """Return what is kept of it: CURVE_POINTS + 1 quantiles, to four digits."""
        last = len(self.quantiles) - 1
        places = [round(last * point / CURVE_POINTS) for point in range(CURVE_POINTS + 1)]
        return asdict(self) | {"quantiles": [float(f"{self.quantiles[place]:.4g}") for place in places]}


Shown: TypeAlias = Row | Course | Curve


def number(value: float | None) -> str:
    """Return a figure with four digits at most behind the first."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| paper | what | published | ours | difference | why |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.paper} | {row.what} ({row.unit}) | {number(row.published)} | {number(row.ours)} "
        f"| {row.difference} | {row.why} |"
        for row in rows
    ]
    return "\n".join(lines)
