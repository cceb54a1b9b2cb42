"""Connections to SQLite opened again: on the file at its path, or with the pages of a database in memory.

Law: a file is opened only where it is; nothing is made in its place.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from replkernel.loaders import loader
from replkernel.state.python.sqlite3 import counts as sqlite_counts
from replkernel.state.python.sqlite3 import layout as sqlite_layout
from replkernel.state.python.sqlite3 import library as sqlite
from replkernel.state.python.sqlite3 import settings
from replkernel.state.python.sqlite3.watch import BASE, Call, Connection, notes_of
from replkernel.state.restore.loading import absent, current
from replkernel.state.tombstone import is_tombstone

if TYPE_CHECKING:
    import sqlite3


_BASE: Any = BASE
MEMORY = ":memory:"
_TEMPORARY = "temp"

Schema = tuple[str, str, tuple[tuple[str, str], ...], Any]
"""A database's name, path (or what stands for one), what its URI says, and its contents if it has no file."""


@loader("sqlite:closed_connection")
def closed_connection(cls: type[sqlite3.Connection], blank: bool) -> object:
    """Return a connection that is closed, or was never opened (called by payloads)."""
    connection = cls.__new__(cls)
    if not blank:
        _BASE.__init__(connection, MEMORY)
        _BASE.close(connection)
    return connection


@loader("sqlite:open_connection")
def open_connection(
    cls: type[sqlite3.Connection],
    options: dict[str, Any],
    schemas: tuple[Schema, ...],
    told: settings.Settings,
    switches: tuple[tuple[int, bool], ...],
    limits: tuple[int, ...],
    counts: tuple[Any, ...],
    replica: str,
) -> object:
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
    changes, rowid, *counted = counts
    if counted and counted[0] is not None:
        sqlite_counts.write(db, counted[0])
    notes = notes_of(connection)
    if notes is not None:
        notes.changes_before = changes - _BASE.total_changes.__get__(connection)
    sqlite.write_last_insert_rowid(db, rowid)
    return connection


def _target(path: str, parameters: tuple[tuple[str, str], ...]) -> str:
    if not parameters:
        return path
    said = "&".join(f"{quote(key)}={quote(value)}" for key, value in parameters)
    return f"file:{quote(path)}?{said}"


@loader("sqlite:fill_connection")
def fill_connection(connection: sqlite3.Connection, state: tuple[Any, ...]) -> None:
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


def _repeat(connection: object, call: Call) -> None:
    name, args, named = call
    getattr(Connection, name)(connection, *args, **named)
