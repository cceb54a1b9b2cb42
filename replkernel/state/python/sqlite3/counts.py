"""How many rows SQLite says that a connection changed, last and in all: read by calls, put in its memory.

SQLite has no call that sets them. Where it keeps them is found by experiment, once, within the memory that it
says a connection has.
Law: where the experiment is not clear, `places` is None, and nothing is read or written.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import functools
import sys
from typing import NamedTuple

from replkernel.state.python.sqlite3 import library as sqlite
from replkernel.state.python.sqlite3.layout import handle

_WIDE_SINCE = (3, 37)
"""SQLite counts in 64 bits since."""

_FIRST_ROW = 5_000_000
"""No count is taken for the id of the row inserted last."""

_ROWS = (1009, 13, 211)
_TRIAL = (59, 7919)

Counts = tuple[int, int]
"""What SQL's `changes()` and `total_changes()` say."""


class Places(NamedTuple):
    """Where a connection counts its last changes and all of them, and in how many bytes."""

    last: int
    total: int
    size: int


@functools.cache
def places() -> Places | None:
    """Return where a connection counts its changes; None when that cannot be found for certain."""
    if sqlite.library() is None:
        return None
    connection = _sqlite3.Connection(":memory:", isolation_level=None)
    try:
        return _found(handle(connection))
    finally:
        connection.close()


def _found(db: int) -> Places | None:
    version = tuple(map(int, _sqlite3.sqlite_version.split(".")))
    size = 8 if version >= _WIDE_SINCE else 4
    sqlite.run(db, "CREATE TABLE t (a INTEGER PRIMARY KEY)")
    last_at: set[int] | None = None
    total_at: set[int] | None = None
    total, row = 0, _FIRST_ROW
    for rows in _ROWS:
        sqlite.run(
            db,
            f"WITH RECURSIVE n(x) AS (VALUES({row}) UNION ALL SELECT x+1 FROM n WHERE x+1<{row + rows}) "  # noqa: S608 (numbers of this module)
            "INSERT INTO t SELECT x FROM n",
        )
        total, row = total + rows, row + rows
        if _said(db) != (rows, total):
            return None
        image = ctypes.string_at(db, sqlite.library().sqlite3_msize(db))
        last_at = _equal(image, rows, size, last_at)
        total_at = _equal(image, total, size, total_at)
    if last_at is None or total_at is None or not len(last_at) == len(total_at) == 1:
        return None
    found = Places(last_at.pop(), total_at.pop(), size)
    _put(db, found, _TRIAL)
    return found if _said(db) == _TRIAL else None


def _equal(image: bytes, value: int, size: int, among: set[int] | None) -> set[int]:
    """Return where a number stands in the memory of a connection, of some places if they are known."""
    wanted = value.to_bytes(size, sys.byteorder)
    tried = range(0, len(image) - size + 1, size) if among is None else among
    return {at for at in tried if image[at : at + size] == wanted}


def _said(db: int) -> Counts:
    call = sqlite.library()
    return int(call.sqlite3_changes(db)), int(call.sqlite3_total_changes(db))


def _put(db: int, where: Places, counts: Counts) -> None:
    kind = ctypes.c_int64 if where.size == 8 else ctypes.c_int
    for at, count in zip((where.last, where.total), counts, strict=True):
        kind.from_address(db + at).value = count


def read(db: int) -> Counts | None:
    """Return what a connection counted; None where it could not be put back."""
    return None if places() is None else _said(db)


def write(db: int, counts: Counts) -> None:
    """Have a connection that is being made say that it changed so many rows."""
    where = places()
    if where is not None:
        _put(db, where, counts)
