"""Connections to SQLite: one in memory travels with its database, one to a file is opened again by its path.

What cannot be carried binds the notebook while it is so: an open transaction, loaded extensions, memory that
connections share, an open blob.
Law: the notebook's handlers are off while a connection is read, and nothing is read through Python's cursors.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from replkernel.namespace import sqlite_layout
from replkernel.namespace import sqlite_library as sqlite
from replkernel.namespace.loading import absent, current, take_buffer
from replkernel.namespace.paths import instance_dict
from replkernel.namespace.reducers import database_settings as settings
from replkernel.namespace.reducers.outcome import CannotTravel
from replkernel.namespace.sqlite_watch import Call, Connection, Notes, notes_of
from replkernel.namespace.tombstone import is_tombstone

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

_BASE: Any = Connection.__mro__[1]
_TEMPORARY = "temp"
_MEMORY = ":memory:"
_KEPT_IN_MEMORY = ("memory", "off")
"""The journals that a database in memory can have; one in a nameless file begins with another."""

_STATEMENTS = 128
_SHARED_MARKS = ("mode=memory", "cache=shared", "vfs=")
_BINDS_SLOTS = "Its class keeps attributes in slots, which cannot be read past the class."
_COUNT_BYTES = 8

Schema = tuple[str, str, tuple[tuple[str, str], ...], Any]
"""A database's name, path (or what stands for one), what its URI says, and its contents if it has no file."""


class Image:
    """A database in memory as a buffer of a payload: its bytes are made only when they are written."""

    def __init__(self, connection: Any, notes: Notes, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._generation = notes.generation
        self._serial = notes.serial
        db = sqlite_layout.handle(connection)
        self._version = sqlite.data_version(db, schema)
        prefix = f"PRAGMA {settings.quoted(schema)}."
        (pages,), (page_bytes,) = (sqlite.run(db, prefix + what)[0] for what in ("page_count", "page_size"))
        self._size = int(pages or 0) * int(page_bytes or 0)

    def __len__(self) -> int:
        return self._size

    def digest(self) -> bytes:
        """Return what tells this state of this database from all others in this process."""
        counts = (self._generation, self._version, self._size)
        return b"".join(
            [self._serial, self._schema.encode(), *(n.to_bytes(_COUNT_BYTES, "little") for n in counts)]
        )

    def host(self) -> memoryview:
        """Return the bytes of the database."""
        with _quiet(self._connection):
            return memoryview(sqlite.serialize(sqlite_layout.handle(self._connection), self._schema))


def reduce_image(pickler: CapturePickler, image: Image) -> Any:
    """Reduce the contents of a database in memory."""
    return take_image, (pickler.emit(image, None),)


def take_image(data: bytes | int) -> Any:
    """Return the bytes of a database (called by payloads)."""
    return take_buffer(data)


@contextlib.contextmanager
def _quiet(connection: Any) -> Iterator[None]:
    """Take a connection's handlers off: they are told of every statement."""
    notes = notes_of(connection)
    handlers = list(notes.handlers.values()) if notes is not None else []
    for name, _, _ in handlers:
        getattr(_BASE, name)(connection, *((None, 0) if name == "set_progress_handler" else (None,)))
    try:
        yield
    finally:
        for name, args, named in handlers:
            getattr(_BASE, name)(connection, *args, **named)


# -- out -------------------------------------------------------------------------------------------------


def reduce_connection(pickler: CapturePickler, connection: Any) -> Any:
    """Reduce a connection."""
    pickler.touched = True
    notes = notes_of(connection)
    if notes is None or sqlite.library() is None:
        raise CannotTravel("How this connection to a database was made cannot be read.")
    _check_slots(type(connection))
    state = (
        instance_dict(connection),
        *(getattr(_BASE, name).__get__(connection) for name in ("row_factory", "text_factory")),
        tuple(notes.calls.values()),
        tuple(notes.handlers.values()),
    )
    if not sqlite_layout.handle(connection):
        blank = _says(connection) == "Base Connection.__init__ not called."
        return closed_connection, (type(connection), blank), state, None, None, fill_connection
    if (
        sqlite_layout.checks_thread(connection)
        and sqlite_layout.thread_of(connection) != threading.main_thread().ident
    ):
        raise CannotTravel("A connection to a database belongs to the thread that made it.")
    _check_state(connection, notes)
    try:
        with _quiet(connection):
            told = _told(connection, notes)
    except sqlite.SqliteError as error:
        raise CannotTravel(f"Its database cannot be read now ({error}).") from None
    arguments = (type(connection), *told, pickler.world.replica)
    return open_connection, arguments, state, None, None, fill_connection


def _says(connection: Any) -> str:
    try:
        _BASE.total_changes.__get__(connection)
    except sqlite3.ProgrammingError as error:
        return str(error)
    return ""


def _check_slots(cls: type) -> None:
    for base in cls.__mro__[: cls.__mro__.index(Connection)]:
        if vars(base).get("__slots__"):
            raise CannotTravel(_BINDS_SLOTS)


def _check_state(connection: Any, notes: Notes) -> None:
    """Raise CannotTravel for what a connection is in the middle of, or has and cannot tell."""
    db = sqlite_layout.handle(connection)
    if sqlite.in_transaction(db):
        raise CannotTravel("A transaction is open, which can be ended only where it was begun.")
    if notes.extensions:
        raise CannotTravel("The extensions that it may have loaded belong to its process.")
    if any(_is_open(blob) for blob in _made_by(connection)):
        raise CannotTravel("A blob is open, which belongs to its process.")


def _made_by(connection: Any) -> Iterator[Any]:
    """Yield the living blobs of a connection."""
    for held in gc.get_referents(connection):
        for ref in held if type(held) is list else ():
            made = ref() if type(ref) is weakref.ref else None
            if isinstance(made, sqlite3.Blob):
                yield made


def _is_open(blob: Any) -> bool:
    try:
        len(blob)
    except sqlite3.ProgrammingError:
        return False
    return True


def _told(connection: Any, notes: Notes) -> tuple[Any, ...]:
    db = sqlite_layout.handle(connection)
    with sqlite.waiting(db) as wait_ms:
        names = [str(row[1]) for row in sqlite.run(db, "PRAGMA database_list")]
        schemas = tuple(_schema(connection, notes, name) for name in names)
        own_like = any(key[1] == "like" for key in notes.calls)
        kinds = [(name, path if path == _MEMORY else "") for name, path, _, _ in schemas]
        told = settings.read(db, kinds, not own_like)
    options = {
        "timeout": wait_ms / 1000,
        "detect_types": sqlite_layout.detect_types(connection),
        "isolation_level": _BASE.isolation_level.__get__(connection),
        "check_same_thread": sqlite_layout.checks_thread(connection),
        "cached_statements": _cached_statements(connection),
    }
    if hasattr(_BASE, "autocommit"):
        options["autocommit"] = _BASE.autocommit.__get__(connection)
    counts = (_BASE.total_changes.__get__(connection) + notes.changes_before, sqlite.last_insert_rowid(db))
    return options, schemas, told, settings.configured(connection), sqlite.limits(db), counts


def _schema(connection: Any, notes: Notes, name: str) -> Schema:
    db = sqlite_layout.handle(connection)
    path = sqlite.file_of(db, name)
    if os.path.isabs(path):  # a database that was loaded into memory is called x
        if not os.path.isfile(path) or sqlite.has_moved(db, name):
            raise CannotTravel(f"The file {path} is no longer at its path.")
        settings.check(db, name)
        return name, path, sqlite.uri_parameters(db, name), None
    marks = " ".join(part for part in notes.arguments if isinstance(part, str))
    if sqlite.is_shared(db) or any(mark in marks for mark in _SHARED_MARKS):
        raise CannotTravel("A database in memory that connections can share belongs to its process.")
    image = Image(connection, notes, name)
    in_memory = sqlite.run(db, f"PRAGMA {settings.quoted(name)}.journal_mode")[0][0] in _KEPT_IN_MEMORY
    return name, _MEMORY if in_memory else "", (), image if len(image) else None


def _cached_statements(connection: Any) -> int:
    for held in gc.get_referents(connection):
        told = getattr(held, "cache_parameters", None)
        if callable(told):
            return int(told()["maxsize"])
    return _STATEMENTS


# -- in --------------------------------------------------------------------------------------------------


def closed_connection(cls: Any, blank: bool) -> Any:
    """Return a connection that is closed, or was never opened (called by payloads)."""
    connection = cls.__new__(cls)
    if not blank:
        _BASE.__init__(connection, _MEMORY)
        _BASE.close(connection)
    return connection


def open_connection(
    cls: Any,
    options: dict[str, Any],
    schemas: tuple[Schema, ...],
    told: settings.Settings,
    switches: tuple[tuple[int, bool], ...],
    limits: tuple[int, ...],
    counts: tuple[int, int],
    replica: str,
) -> Any:
    """Open a database again; a tombstone when its file is not here (called by payloads)."""
    for _, path, _, _ in schemas:
        if os.path.isabs(path) and not os.path.isfile(path):
            reason = f"The file {path} of the database is not on this host."
            return absent(path, "connection to a SQLite database", replica, reason)
    connection = cls.__new__(cls)
    _, path, parameters, _ = schemas[0]
    target = _target(path, parameters)
    _BASE.__init__(connection, target, **options, uri=target.startswith("file:"))
    db = sqlite_layout.handle(connection)
    for name, path, parameters, _ in schemas[1:]:
        if name == _TEMPORARY:
            sqlite.run(db, "SELECT count(*) FROM sqlite_temp_master")
            continue
        text = _target(path, parameters).replace("'", "''")
        sqlite.run(db, f"ATTACH '{text}' AS {settings.quoted(name)}")
    for name, _, _, image in schemas:
        if image is not None:
            sqlite.write_pages(db, name, bytes(image))
    settings.put(db, told)
    settings.configure(connection, switches)
    settings.put_limits(connection, limits)
    notes = notes_of(connection)
    if notes is not None:
        notes.changes_before = counts[0] - _BASE.total_changes.__get__(connection)
    sqlite.write_last_insert_rowid(db, counts[1])
    return connection


def _target(path: str, parameters: tuple[tuple[str, str], ...]) -> str:
    if not parameters:
        return path
    said = "&".join(f"{quote(key)}={quote(value)}" for key, value in parameters)
    return f"file:{quote(path)}?{said}"


def fill_connection(connection: Any, state: tuple[Any, ...]) -> None:
    """Give a connection what the notebook gave it (called by payloads)."""
    if is_tombstone(connection):
        return
    attributes, row_factory, text_factory, calls, handlers = state
    if attributes:
        vars(connection).update(attributes)
    _BASE.row_factory.__set__(connection, row_factory)
    _BASE.text_factory.__set__(connection, text_factory)
    if not sqlite_layout.handle(connection):
        return
    for name, args, named in (*calls, *handlers):
        _repeat(connection, (name, args, named))
    # Cursors are still to be made of it, on this thread.
    ident = threading.main_thread().ident or 0
    current().late.append(lambda: sqlite_layout.write_thread(connection, ident))


def _repeat(connection: Any, call: Call) -> None:
    name, args, named = call
    getattr(Connection, name)(connection, *args, **named)


EXACT: dict[type, Any] = {Image: reduce_image}
FAMILIES = [(_BASE, reduce_connection)]
