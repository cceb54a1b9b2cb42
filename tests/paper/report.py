"""A row of the suite, its table, its file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "sim"


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


def write(rows: Sequence[Row], skipped: Sequence[str]) -> Path:
    """Write paper.json and paper.md, and return where the table is."""
    BUILD.mkdir(parents=True, exist_ok=True)
    document = {"rows": [asdict(row) | {"difference": row.difference} for row in rows], "skipped": [*skipped]}
    (BUILD / "paper.json").write_text(json.dumps(document, indent=2) + "\n")
    path = BUILD / "paper.md"
    path.write_text(table(rows) + "\n" + "".join(f"\nskipped: {line}" for line in skipped) + "\n")
    return path
