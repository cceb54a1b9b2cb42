"""SQLite's own interface, for what Python's `sqlite3` does not tell of a connection.

A question asked here goes past Python's cursors, statement caches and factories, so the notebook sees nothing
of it.
Law: a connection is only read here, but by `write_*`, which are for one that is being made.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator
from typing import Any

from replkernel.state.python.sqlite3.layout import handle, layout

LIMITS = range(11)
WAIT_MS = 1_000
"""So long a capture waits for whoever is writing to a file."""

_OK, _ROW, _DONE = 0, 100, 101
_HAS_MOVED, _DATA_VERSION = 20, 35
_CACHE_USED, _CACHE_USED_SHARED = 1, 11
_NO_COPY = 1
_ALL_PAGES = -1
_BASE = _sqlite3.Connection


class SqliteError(Exception):
    """SQLite refused a question; the text is its own."""


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sqlite3_db_filename": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)),
    "sqlite3_uri_key": (ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_int)),
    "sqlite3_uri_parameter": (ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_char_p)),
    "sqlite3_file_control": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p),
    ),
    "sqlite3_get_autocommit": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_next_stmt": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)),
    "sqlite3_stmt_busy": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_stmt_readonly": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_serialize": (
        ctypes.c_void_p,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_uint),
    ),
    "sqlite3_free": (None, (ctypes.c_void_p,)),
    "sqlite3_backup_init": (
        ctypes.c_void_p,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p),
    ),
    "sqlite3_backup_step": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    "sqlite3_backup_finish": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_limit": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
    "sqlite3_last_insert_rowid": (ctypes.c_int64, (ctypes.c_void_p,)),
    "sqlite3_set_last_insert_rowid": (None, (ctypes.c_void_p, ctypes.c_int64)),
    "sqlite3_changes": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_total_changes": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_msize": (ctypes.c_uint64, (ctypes.c_void_p,)),
    "sqlite3_busy_timeout": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    "sqlite3_db_status": (
        ctypes.c_int,
        (
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_int),
            ctypes.POINTER(ctypes.c_int),
            ctypes.c_int,
        ),
    ),
    "sqlite3_prepare_v2": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p),
    ),
    "sqlite3_step": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_column_count": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_column_text": (ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_int)),
    "sqlite3_finalize": (ctypes.c_int, (ctypes.c_void_p,)),
    "sqlite3_errmsg": (ctypes.c_char_p, (ctypes.c_void_p,)),
}


@functools.cache
def library() -> Any:
    """Return the SQLite library that Python uses; None where it cannot be called or is not laid out so."""
    if sys.implementation.name != "cpython" or layout() is None:
        return None
    try:
        found = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return found


# -- questions to SQLite -------------------------------------------------------------------------------


def run(connection: int, sql: str) -> list[tuple[str | None, ...]]:
    """Run one statement and return its rows as text; raises SqliteError."""
    call = library()
    statement = ctypes.c_void_p()
    text = sql.encode()
    rows = []
    try:
        if call.sqlite3_prepare_v2(connection, text, len(text), ctypes.byref(statement), None) != _OK:
            raise SqliteError(_message(connection))
        while (code := call.sqlite3_step(statement)) == _ROW:
            values = (
                call.sqlite3_column_text(statement, index)
                for index in range(call.sqlite3_column_count(statement))
            )
            rows.append(tuple(None if value is None else value.decode() for value in values))
        if code != _DONE:
            raise SqliteError(_message(connection))
    finally:
        call.sqlite3_finalize(statement)
    return rows


def _message(connection: int) -> str:
    return bytes(library().sqlite3_errmsg(connection)).decode(errors="replace")


@contextlib.contextmanager
def waiting(connection: int) -> Iterator[int]:
    """Have questions wait a short while for a lock; yields how many ms the connection itself waits."""
    (wait,) = run(connection, "PRAGMA busy_timeout")[0]
    wait_ms = int(wait or 0)
    library().sqlite3_busy_timeout(connection, WAIT_MS)
    try:
        yield wait_ms
    finally:
        library().sqlite3_busy_timeout(connection, wait_ms)


def file_of(connection: int, schema: str) -> str:
    """Return the absolute path of a database's file, empty for one without."""
    name = library().sqlite3_db_filename(connection, schema.encode())
    return ctypes.string_at(name).decode() if name else ""


def uri_parameters(connection: int, schema: str) -> tuple[tuple[str, str], ...]:
    """Return what the URI that a file was opened by says beside its path."""
    call = library()
    name = call.sqlite3_db_filename(connection, schema.encode())
    found: list[tuple[str, str]] = []
    while name and (key := call.sqlite3_uri_key(name, len(found))) is not None:
        found.append((key.decode(), (call.sqlite3_uri_parameter(name, key) or b"").decode()))
    return tuple(found)


def has_moved(connection: int, schema: str) -> bool:
    """Tell whether a database's file is no longer at its path."""
    moved = ctypes.c_int(0)
    library().sqlite3_file_control(connection, schema.encode(), _HAS_MOVED, ctypes.byref(moved))
    return bool(moved.value)


_LOG_VERSIONS = slice(18, 20)
"""Where a database's header says what reads and writes it: 1 without, 2 with a write-ahead log."""


def data_version(connection: int, schema: str) -> int:
    """Return a number that every committed change of a database changes, whatever made it."""
    version = ctypes.c_uint(0)
    code = library().sqlite3_file_control(connection, schema.encode(), _DATA_VERSION, ctypes.byref(version))
    if code != _OK:
        raise SqliteError("The version of its data cannot be told")
    return version.value


def write_pages(connection: int, schema: str, image: bytes) -> None:
    """Fill an empty database with the pages of another: it stays what it was opened as."""
    call = library()
    loaded = _BASE(":memory:")
    try:
        _BASE.deserialize(loaded, image)
        ((page_bytes,),) = run(handle(loaded), "PRAGMA page_size")
        ((version,),) = run(handle(loaded), "PRAGMA schema_version")
        name = '"' + schema.replace('"', '""') + '"'
        run(connection, f"PRAGMA {name}.page_size = {page_bytes}")
        copy = call.sqlite3_backup_init(connection, schema.encode(), handle(loaded), b"main")
        if not copy:
            raise SqliteError(_message(connection))
        code = call.sqlite3_backup_step(copy, _ALL_PAGES)
        call.sqlite3_backup_finish(copy)
        if code != _DONE:
            raise SqliteError(_message(connection))
        run(connection, f"PRAGMA {name}.schema_version = {version}")
    finally:
        loaded.close()


def in_transaction(connection: int) -> bool:
    """Tell whether a transaction is open, or a statement that writes has rows left."""
    call = library()
    if not call.sqlite3_get_autocommit(connection):
        return True
    statement = None
    while (statement := call.sqlite3_next_stmt(connection, statement)) is not None:
        if call.sqlite3_stmt_busy(statement) and not call.sqlite3_stmt_readonly(statement):
            return True
    return False


def has_rows_left(connection: int) -> bool:
    """Tell whether a statement was begun and neither came to its end nor was reset."""
    call = library()
    statement = None
    while (statement := call.sqlite3_next_stmt(connection, statement)) is not None:
        if call.sqlite3_stmt_busy(statement):
            return True
    return False


def is_shared(connection: int) -> bool:
    """Tell whether another connection uses the same memory."""
    used, shared = (_status(connection, what) for what in (_CACHE_USED, _CACHE_USED_SHARED))
    return used != shared


def _status(connection: int, what: int) -> int:
    now, most = ctypes.c_int(0), ctypes.c_int(0)
    library().sqlite3_db_status(connection, what, ctypes.byref(now), ctypes.byref(most), 0)
    return now.value


def serialize(connection: int, schema: str) -> bytes:
    """Return a database as the bytes of its file."""
    call = library()
    size = ctypes.c_int64(0)
    for flags in (_NO_COPY, 0):
        place = call.sqlite3_serialize(connection, schema.encode(), ctypes.byref(size), flags)
        if place:
            try:
                return _without_log(ctypes.string_at(place, size.value))
            finally:
                if not flags:
                    call.sqlite3_free(place)
    raise SqliteError(_message(connection))


def _without_log(image: bytes) -> bytes:
    """Return the bytes of a database in memory as such a one can be opened.

    One copied from a file with a write-ahead log says that it has one, for which SQLite wants a file.
    """
    if image[_LOG_VERSIONS] != b"\2\2":
        return image
    return b"".join([image[: _LOG_VERSIONS.start], b"\1\1", image[_LOG_VERSIONS.stop :]])


def limits(connection: int) -> tuple[int, ...]:
    """Return the limits of a connection, by their numbers."""
    return tuple(library().sqlite3_limit(connection, number, -1) for number in LIMITS)


def last_insert_rowid(connection: int) -> int:
    """Return the id of the row inserted last."""
    return int(library().sqlite3_last_insert_rowid(connection))


def write_last_insert_rowid(connection: int, rowid: int) -> None:
    """Set the id of the row inserted last."""
    library().sqlite3_set_last_insert_rowid(connection, rowid)
