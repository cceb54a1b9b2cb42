"""A trace that is a CSV file with a header: its rows, by the names of their columns.

Law: lines that begin with # are comments, unless the header itself does. A line is a row.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator

from replkernel_scheduler.sim.errors import TraceUnreadable
from replkernel_scheduler.sim.trace_file import TraceFile

NUMBER, DIFFERENCE = "#", "-"
"""What a user may say a column is: the number of the line, the difference of two columns."""


def columns_of(line: str) -> list[str]:
    """Return the names in a header line."""
    return [name.strip() for name in _cells(line.removeprefix("#"))]


def header_of(file: TraceFile) -> list[str]:
    """Return the names of the columns: those of the first line that is no comment."""
    for line in file.lines():
        if not line.startswith("#") or line.startswith("#job id,"):
            return _with_ours(file, columns_of(line))
    return []


def _with_ours(file: TraceFile, header: list[str]) -> list[str]:
    """Return the columns with those that the user says are among them; raise TraceUnreadable."""
    twice = next((name for name, count in Counter(header).items() if name and count > 1), None)
    if twice is not None:
        raise TraceUnreadable(f"{file.path} has two columns {twice!r}: rename one of them.")
    for ours, theirs in file.columns:
        for name in _parts(theirs, header):
            if name != NUMBER and name not in header:
                raise TraceUnreadable(
                    f"{file.path} has no column {name!r} to be {ours}: there are {', '.join(header)[:400]}."
                )
    return header + [ours for ours, _ in file.columns if ours not in header]


def _parts(theirs: str, header: list[str]) -> list[str]:
    """Return the columns that `deletion-creation` is the difference of, or the one that it is."""
    if theirs in header or DIFFERENCE not in theirs:
        return [theirs]
    return theirs.split(DIFFERENCE, 1)


def rows(file: TraceFile, header: list[str]) -> Iterator[dict[str, str]]:
    """Yield the rows after the header; those with too few or too many columns are bad ones."""
    physical: list[str] | None = None
    for line in file.lines():
        if line.startswith("#") and not line.startswith("#job id,"):
            continue
        if physical is None:
            physical = columns_of(line)
            continue
        cells = _cells(line)
        if len(cells) != len(physical):
            file.refuse(f"there are {len(cells)} columns, where the header has {len(physical)}")
            continue
        row = dict(zip(physical, cells, strict=True))
        if file.columns:
            row |= {ours: _value(row, _parts(theirs, physical), file.line) for ours, theirs in file.columns}
        yield row


def _value(row: dict[str, str], parts: list[str], line: int) -> str:
    if parts == [NUMBER]:
        return str(line)
    if len(parts) == 1:
        return row[parts[0]]
    try:
        return str(float(row[parts[0]]) - float(row[parts[1]]))
    except ValueError:
        return ""  # Whoever reads the column says that this is no number.


def _cells(line: str) -> list[str]:
    return next(csv.reader([line])) if '"' in line else line.split(",")
