"""Connections to SQLite: one in memory travels with its database, one to a file is opened again by its path.

What cannot be carried binds the notebook while it is so: an open transaction, loaded extensions, memory that
connections share, an open blob.
Law: the notebook's handlers are off while a connection is read, and nothing is read through Python's cursors.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import lineage
from replkernel.state.python.paths import instance_dict
from replkernel.state.python.sqlite3 import counts as sqlite_counts
from replkernel.state.python.sqlite3 import layout as sqlite_layout
from replkernel.state.python.sqlite3 import library as sqlite
from replkernel.state.python.sqlite3 import settings
from replkernel.state.python.sqlite3.images import Image
from replkernel.state.python.sqlite3.opening import (
    MEMORY,
    Schema,
    closed_connection,
    fill_connection,
    open_connection,
)
from replkernel.state.python.sqlite3.watch import BASE, Connection, Notes, notes_of, quiet

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_BASE: Any = BASE
_KEPT_IN_MEMORY = ("memory", "off")
"""The journals that a database in memory can have; one in a nameless file begins with another."""

_STATEMENTS = 128
_SHARED_MARKS = ("mode=memory", "cache=shared", "vfs=")
_BINDS_SLOTS = "Its class keeps attributes in slots, which cannot be read past the class."


def reduce_connection(pickler: UnitContext, connection: object) -> object:
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
        return closed_connection, (type(connection), blank), (*state[:3], (), ()), None, None, fill_connection
    if (
        sqlite_layout.checks_thread(connection)
        and sqlite_layout.thread_of(connection) != threading.main_thread().ident
    ):
        raise CannotTravel("A connection to a database belongs to the thread that made it.")
    _check_state(connection, notes)
    try:
        with quiet(connection):
            told = _told(connection, notes)
    except sqlite.SqliteError as error:
        raise CannotTravel(f"Its database cannot be read now ({error}).") from None
    arguments = (type(connection), *told, pickler.world.replica)
    return open_connection, arguments, state, None, None, fill_connection


def _says(connection: object) -> str:
    try:
        _BASE.total_changes.__get__(connection)
    except sqlite3.ProgrammingError as error:
        return str(error)
    return ""


def _check_slots(cls: type) -> None:
    for base in cls.__mro__[: lineage(cls).index(Connection)]:
        if vars(base).get("__slots__"):
            raise CannotTravel(_BINDS_SLOTS)


def _check_state(connection: object, notes: Notes) -> None:
    """Raise CannotTravel for what a connection is in the middle of, or has and cannot tell."""
    db = sqlite_layout.handle(connection)
    if sqlite.in_transaction(db):
        raise CannotTravel("A transaction is open, which can be ended only where it was begun.")
    if notes.extensions:
        raise CannotTravel("The extensions that it may have loaded belong to its process.")
    if any(_is_open(blob) for blob in _made_by(connection)):
        raise CannotTravel("A blob is open, which belongs to its process.")


def _made_by(connection: object) -> Iterator[Any]:
    """Yield the living blobs of a connection."""
    for held in gc.get_referents(connection):
        for ref in held if type(held) is list else ():
            made = ref() if type(ref) is weakref.ref else None
            if isinstance(made, sqlite3.Blob):
                yield made


def _is_open(blob: sqlite3.Blob) -> bool:
    try:
        len(blob)
    except sqlite3.ProgrammingError:
        return False
    return True


def _told(connection: object, notes: Notes) -> tuple[Any, ...]:
    db = sqlite_layout.handle(connection)
    with sqlite.waiting(db) as wait_ms:
        names = [str(row[1]) for row in sqlite.run(db, "PRAGMA database_list")]
        schemas = tuple(_schema(connection, notes, name) for name in names)
        own_like = any(key[1] == "like" for key in notes.calls)
        kinds = [(name, path if path == MEMORY else "") for name, path, _, _ in schemas]
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
    changes = _BASE.total_changes.__get__(connection) + notes.changes_before
    counts = (changes, sqlite.last_insert_rowid(db), sqlite_counts.read(db))
    return options, schemas, told, settings.configured(connection), sqlite.limits(db), counts


def _schema(connection: object, notes: Notes, name: str) -> Schema:
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
    return name, MEMORY if in_memory else "", (), image if len(image) else None


def _cached_statements(connection: object) -> int:
    for held in gc.get_referents(connection):
        told = getattr(held, "cache_parameters", None)
        if callable(told):
            return int(told()["maxsize"])
    return _STATEMENTS


FAMILIES = [(_BASE, reduce_connection)]
