"""A trace that is a CSV file with a header: its rows, by the names of their columns.

Law: lines that begin with # are comments, unless the header itself does. A line is a row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from replkernel_scheduler.sim.trace_file import TraceFile


def columns_of(line: str) -> list[str]:
    """Return the names in a header line."""
    return [name.strip() for name in _cells(line.removeprefix("#"))]


def header_of(file: TraceFile) -> list[str]:
    """Return the names of the columns: those of the first line that is no comment."""
    for line in file.lines():
        if not line.startswith("#") or line.startswith("#job id,"):
            return columns_of(line)
    return []


def rows(file: TraceFile, header: list[str]) -> Iterator[dict[str, str]]:
    """Yield the rows after the header; those with too few or too many columns are bad ones."""
    count, seen = len(header), False
    for line in file.lines():
        if line.startswith("#") and not line.startswith("#job id,"):
            continue
        if not seen:
            seen = True
            continue
        cells = _cells(line)
        if len(cells) == count:
            yield dict(zip(header, cells, strict=True))
        else:
            file.refuse(f"there are {len(cells)} columns, where the header has {count}")


def _cells(line: str) -> list[str]:
    return next(csv.reader([line])) if '"' in line else line.split(",")
