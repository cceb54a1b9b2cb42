"""Cursors of SQLite without rows left, rows with their names, closed blobs.

A cursor's description, row count and last row id have no way in but its memory; where they are is read from
Python's own description of them, and checked once.
Law: a cursor with rows left is refused: its statement would have to be run again.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import functools
import gc
import sqlite3
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.paths import instance_dict
from replkernel.state.python.sqlite3 import layout as sqlite_layout
from replkernel.state.python.sqlite3 import library as sqlite_library
from replkernel.state.python.sqlite3.connections import reduce_connection
from replkernel.state.tombstone import is_tombstone

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_CURSOR: Any = sqlite3.Cursor
_CONNECTION = _sqlite3.Connection
_CLOSED = "Cannot operate on a closed cursor."
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_HIDDEN = ("description", "lastrowid", "rowcount", "connection")
_MEMBER_AT = object.__basicsize__ + 3 * _POINTER_BYTES
"""Where the descriptor of a member has the address of its definition: behind class, name and full name."""

_OFFSET_AT = 2 * _POINTER_BYTES
"""Where the definition has the member's offset: behind its name and kind."""


class _Offsets:
    """Where a cursor has what can only be read."""

    def __init__(self) -> None:
        self.description, self.lastrowid, self.rowcount, self.connection = map(_offset, _HIDDEN)


def _offset(name: str) -> int:
    member = vars(_CURSOR)[name]
    definition = ctypes.c_void_p.from_address(id(member) + _MEMBER_AT).value or 0
    return int(ctypes.c_ssize_t.from_address(definition + _OFFSET_AT).value)


@functools.cache
def _offsets() -> _Offsets | None:
    """Return where they are; None where cursors are not laid out as is known here."""
    if any(type(vars(_CURSOR).get(name)).__name__ != "member_descriptor" for name in _HIDDEN):
        return None
    found = _Offsets()
    if not all(object.__basicsize__ <= _offset(name) < _CURSOR.__basicsize__ for name in _HIDDEN):
        return None
    with_rows = sqlite3.connect(":memory:")
    try:
        cursor = with_rows.execute("CREATE TABLE t (a)").connection.execute("INSERT INTO t VALUES (1)")
        told = cursor.execute("SELECT a FROM t UNION SELECT 2 UNION SELECT 3").description
        read = ctypes.c_void_p.from_address(id(cursor) + found.description).value == id(told)
        counted = with_rows.executemany("INSERT INTO t VALUES (?)", [(1,)] * 7)
        read = read and ctypes.c_long.from_address(id(counted) + found.rowcount).value == counted.rowcount
        read = read and ctypes.c_void_p.from_address(id(cursor) + found.connection).value == id(with_rows)
        rowid = ctypes.c_void_p.from_address(id(cursor) + found.lastrowid).value == id(cursor.lastrowid)
        return found if read and rowid else None
    finally:
        with_rows.close()


def _write(cursor: object, offset: int, value: object) -> None:
    place = ctypes.c_void_p.from_address(id(cursor) + offset)
    before = place.value
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    place.value = id(value)
    if before:
        ctypes.pythonapi.Py_DecRef(ctypes.cast(before, ctypes.py_object))


def _describe(cursor: object, names: tuple[str, ...] | None, lastrowid: int | None, rowcount: int) -> None:
    found = _offsets()
    assert found is not None
    if names is not None:
        _write(cursor, found.description, tuple((name, *(None,) * 6) for name in names))
    _write(cursor, found.lastrowid, lastrowid)
    ctypes.c_long.from_address(id(cursor) + found.rowcount).value = rowcount


# -- cursors ---------------------------------------------------------------------------------------------


def reduce_cursor(pickler: UnitContext, cursor: object) -> object:
    """Reduce a cursor that has given all its rows."""
    if _offsets() is None:
        raise CannotTravel("How this release of Python keeps a cursor is not known.")
    said = _says(cursor)
    connection = _CURSOR.connection.__get__(cursor)
    if said not in ("", _CLOSED) and not _is_closed(connection):
        raise CannotTravel(f"The cursor cannot be read ({said}).")
    if _has_rows_left(cursor, connection):
        raise CannotTravel("The cursor has rows left, which only its own process can give.")
    if pickler.careful and isinstance(connection, _CONNECTION):
        # A tombstone of its own, where its connection is one.
        reduce_connection(pickler, connection)
    if any(vars(base).get("__slots__") for base in type(cursor).__mro__[:-2]):
        raise CannotTravel("Its class keeps attributes in slots, which cannot be read past the class.")
    description = _CURSOR.description.__get__(cursor)
    told = (
        None if description is None else tuple(column[0] for column in description),
        _CURSOR.lastrowid.__get__(cursor),
        _CURSOR.rowcount.__get__(cursor),
        _CURSOR.arraysize.__get__(cursor),
        said == _CLOSED,
    )
    state = (instance_dict(cursor), _CURSOR.row_factory.__get__(cursor))
    return make_cursor, (type(cursor), connection, *told), state, None, None, fill_cursor


def _has_rows_left(cursor: object, connection: object) -> bool:
    """Tell whether a cursor may have rows left: `executemany` leaves it a statement that has none."""
    if not _has_statement(cursor):
        return False
    if sqlite_library.library() is None or not isinstance(connection, _CONNECTION):
        return True
    db = sqlite_layout.handle(connection)
    return not db or sqlite_library.has_rows_left(db)


def _has_statement(cursor: object) -> bool:
    return any(type(one).__name__ == "Statement" for one in gc.get_referents(cursor))


def _says(cursor: object) -> str:
    """Return what a cursor without rows says to whoever asks for one."""
    if _has_statement(cursor):
        return ""
    try:
        _CURSOR.fetchone(cursor)
    except sqlite3.Error as error:
        return str(error)
    return ""


def _is_closed(connection: object) -> bool:
    try:
        _CONNECTION.total_changes.__get__(connection)
    except (sqlite3.ProgrammingError, AttributeError):
        return True
    return False


@loader("sqlite:make_cursor")
def make_cursor(
    cls: Any,
    connection: object,
    names: tuple[str, ...] | None,
    lastrowid: int | None,
    rowcount: int,
    arraysize: int,
    closed: bool,
) -> object:
    """Return a cursor that has given all its rows (called by payloads)."""
    if is_tombstone(connection):
        return connection
    cursor = cls.__new__(cls)
    if closed:
        # A cursor can be closed only while its connection is open.
        _CURSOR.__init__(cursor, _scratch().connection)
        _CURSOR.close(cursor)
        _write(cursor, _offset("connection"), connection)
    else:
        _CURSOR.__init__(cursor, connection)
    _describe(cursor, names, lastrowid, rowcount)
    _CURSOR.arraysize.__set__(cursor, arraysize)
    return cursor


@loader("sqlite:fill_cursor")
def fill_cursor(cursor: sqlite3.Cursor, state: tuple[Any, ...]) -> None:
    """Give a cursor what the notebook gave it (called by payloads)."""
    if is_tombstone(cursor):
        return
    attributes, row_factory = state
    if attributes:
        vars(cursor).update(attributes)
    _CURSOR.row_factory.__set__(cursor, row_factory)


def reduce_blob(pickler: UnitContext, blob: sqlite3.Blob) -> object:
    """Reduce a blob that was read or written piece by piece, and is closed."""
    try:
        len(blob)
    except sqlite3.ProgrammingError:
        return closed_blob, ()
    raise CannotTravel("An open blob of a database belongs to its process.")


@loader("sqlite:closed_blob")
def closed_blob() -> object:
    """Return a blob that is closed (called by payloads)."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (zeroblob(1))")
        blob = connection.blobopen("t", "a", 1)
        blob.close()
        return blob
    finally:
        connection.close()


# -- rows ------------------------------------------------------------------------------------------------


def reduce_row(pickler: UnitContext, row: sqlite3.Row) -> object:
    """Reduce a row that knows its columns' names."""
    if _offsets() is None:
        raise CannotTravel("How this release of Python keeps a row is not known.")
    return make_row, (type(row), tuple(sqlite3.Row.keys(row)), tuple(sqlite3.Row.__iter__(row)))


@functools.cache
def _scratch() -> Any:
    return sqlite3.connect(":memory:", check_same_thread=False).cursor()


@loader("sqlite:make_row")
def make_row(cls: type[sqlite3.Row], names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Return a row (called by payloads)."""
    cursor = _scratch()
    _describe(cursor, names, None, -1)
    return cls.__new__(cls, cursor, values)


EXACT: dict[type, Any] = {sqlite3.Row: reduce_row}
FAMILIES = [(sqlite3.Cursor, reduce_cursor), (sqlite3.Blob, reduce_blob)]
