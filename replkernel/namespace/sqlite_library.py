"""SQLite's own interface, for what Python's `sqlite3` does not tell of a connection.

A question asked here goes past Python's cursors, statement caches and factories, so the notebook sees nothing of
it. Where Python keeps a connection's settings is found by experiment, once, and not relied on otherwise.
Law: a connection is only read here, but by `write_*` and `run`, which are for one that is being made.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

HEADER_BYTES = object.__basicsize__
LIMITS = range(11)
_OK, _ROW, _DONE = 0, 100, 101
_HAS_MOVED, _DATA_VERSION = 20, 35
_CACHE_USED, _CACHE_USED_SHARED = 1, 11
_NO_COPY = 1
_ALL_PAGES = -1
_BASE = _sqlite3.Connection
_TYPES_MARK = 0x5A17C300
"""Bits of `detect_types` that mean nothing, by which its place is found."""


class SqliteError(Exception):
    """SQLite refused a question; the text is its own."""


class Layout(NamedTuple):
    """Where a connection keeps `detect_types`, `check_same_thread` and the thread that made it."""

    detect_types: int
    same_thread: int
    thread: int


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


# -- where Python keeps what it does not tell ----------------------------------------------------------


def _image(connection: Any) -> bytes:
    return ctypes.string_at(id(connection), _BASE.__basicsize__)


def _places(image: bytes, value: int, size: int) -> set[int]:
    wanted = value.to_bytes(size, sys.byteorder)
    return {at for at in range(HEADER_BYTES, len(image), size) if image[at : at + size] == wanted}


@functools.cache
def layout() -> Layout | None:
    """Return where a connection keeps its settings; None when that cannot be found for certain."""
    made = []
    try:
        for types, same in ((_TYPES_MARK | 1, True), (_TYPES_MARK | 2, True), (_TYPES_MARK | 1, False)):
            made.append(_BASE(":memory:", detect_types=types, check_same_thread=same))
        one, two, three = (_image(connection) for connection in made)
        types_at = _places(one, _TYPES_MARK | 1, 4) & _places(two, _TYPES_MARK | 2, 4)
        same_at = _places(one, 1, 4) & _places(two, 1, 4) & _places(three, 0, 4)
        ident = threading.get_ident()
        thread_at = _places(one, ident, 8) & _places(two, ident, 8)
        made[2].close()
        closed = int.from_bytes(_image(made[2])[HEADER_BYTES : HEADER_BYTES + 8], sys.byteorder)
        opened = int.from_bytes(one[HEADER_BYTES : HEADER_BYTES + 8], sys.byteorder)
    finally:
        for connection in made:
            connection.close()
    if closed or not opened or not len(types_at) == len(same_at) == len(thread_at) == 1:
        return None
    return Layout(*types_at, *same_at, *thread_at)


def _at(kind: Any, connection: Any, offset: int) -> Any:
    return kind.from_address(id(connection) + offset)


def handle(connection: Any) -> int:
    """Return SQLite's own connection; 0 when it is closed, or was never opened."""
    return _at(ctypes.c_void_p, connection, HEADER_BYTES).value or 0


def detect_types(connection: Any) -> int:
    """Return the `detect_types` that a connection was made with."""
    return int(_at(ctypes.c_int, connection, _known().detect_types).value)


def checks_thread(connection: Any) -> bool:
    """Tell whether a connection was made with `check_same_thread`."""
    return bool(_at(ctypes.c_int, connection, _known().same_thread).value)


def thread_of(connection: Any) -> int:
    """Return the thread that made a connection."""
    return int(_at(ctypes.c_ulong, connection, _known().thread).value)


def write_thread(connection: Any, ident: int) -> None:
    """Give a connection that is being made to a thread."""
    _at(ctypes.c_ulong, connection, _known().thread).value = ident


def _known() -> Layout:
    found = layout()
    assert found is not None
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
def impatient(connection: int) -> Iterator[int]:
    """Have questions fail at once where a database is locked; yields how many ms others wait for it."""
    (wait,) = run(connection, "PRAGMA busy_timeout")[0]
    wait_ms = int(wait or 0)
    library().sqlite3_busy_timeout(connection, 0)
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
    found = []
    while name and (key := call.sqlite3_uri_key(name, len(found))) is not None:
        found.append((key.decode(), (call.sqlite3_uri_parameter(name, key) or b"").decode()))
    return tuple(found)


def has_moved(connection: int, schema: str) -> bool:
    """Tell whether a database's file is no longer at its path."""
    moved = ctypes.c_int(0)
    library().sqlite3_file_control(connection, schema.encode(), _HAS_MOVED, ctypes.byref(moved))
    return bool(moved.value)


def data_version(connection: int, schema: str) -> int:
    """Return a number that every committed change of a database changes, whatever made it."""
    version = ctypes.c_uint(0)
    code = library().sqlite3_file_control(
        connection, schema.encode(), _DATA_VERSION, ctypes.byref(version)
    )
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
                return ctypes.string_at(place, size.value)
            finally:
                if not flags:
                    call.sqlite3_free(place)
    raise SqliteError(_message(connection))


def limits(connection: int) -> tuple[int, ...]:
    """Return the limits of a connection, by their numbers."""
    return tuple(library().sqlite3_limit(connection, number, -1) for number in LIMITS)


def last_insert_rowid(connection: int) -> int:
    """Return the id of the row inserted last."""
    return int(library().sqlite3_last_insert_rowid(connection))


def write_last_insert_rowid(connection: int, rowid: int) -> None:
    """Set the id of the row inserted last."""
    library().sqlite3_set_last_insert_rowid(connection, rowid)
