"""What `sqlite3` connections do not give back: functions, collations and handlers, noted as they are made.

`sqlite3.Connection` is a subclass that notes them; `sqlite3.connect` makes it.
Law: what is noted is what Python's own method took; nothing that a notebook calls behaves differently, and no
line of here is in the traceback of an error.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import functools
import os
import sqlite3
import sqlite3.dbapi2
from collections.abc import Iterator
from typing import Any

BASE = _sqlite3.Connection
"""Python's own class of connections."""

_FACTORY_AT = 5
"""The place of `factory` among the arguments of `connect`."""

_SERIAL_BYTES = 8

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class Notes:
    """What was done to one connection. `calls` are repeated on another replica, the last for each key.

    `generation` counts the times that a whole database was put in; `changes_before` are the rows changed on
    other replicas. `serial` tells this connection from all others.
    """

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.calls: dict[tuple[Any, ...], Call] = {}
        self.handlers: dict[str, Call] = {}
        self.extensions = False
        self.generation = 0
        self.changes_before = 0
        self.serial = os.urandom(_SERIAL_BYTES)


def _hide(error: BaseException) -> None:
    """Take the innermost frame out of a traceback: a bare ``raise`` does not put it in again."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next


class Connection(BASE):
    """SQLite database connection object."""

    __slots__ = ("__weakref__", "_replkernel_notes")
    __module__ = "sqlite3"
    _replkernel_notes: Notes

    def __new__(cls, *args: Any, **named: object) -> Any:
        connection = BASE.__new__(cls)
        connection._replkernel_notes = Notes((*args, *named.values()))
        return connection

    @property
    def total_changes(self) -> int:
        """Total number of rows changed since the connection was opened."""
        try:
            here = int(_TOTAL_CHANGES(self))
        except sqlite3.Error as error:
            _hide(error)
            raise
        return here + int(self._replkernel_notes.changes_before)

    def deserialize(self, *args: Any, **named: Any) -> None:
        """Load a serialized database."""
        try:
            BASE.deserialize(self, *args, **named)
        except BaseException as error:
            _hide(error)
            raise
        self._replkernel_notes.generation += 1


_TOTAL_CHANGES = BASE.total_changes.__get__


def _noting(name: str, parameters: tuple[str, ...], kind: str) -> object:
    """Return a method that notes what Python's own of that name was called with."""
    own = getattr(BASE, name)

    @functools.wraps(own)
    def method(self: Any, *args: Any, **named: object) -> object:
        try:
            result = own(self, *args, **named)
        except BaseException as error:
            _hide(error)
            raise
        told = {**dict(zip(parameters, args, strict=False)), **named}
        notes: Notes = self._replkernel_notes
        if kind == "extensions":
            notes.extensions = True
            return result
        if kind == "handler":
            notes.handlers[name] = (name, args, named)
            return result
        count = told.get("narg", told.get("n_arg"))
        key = (kind, str(told["name"]).lower(), count)
        notes.calls.pop(key, None)
        notes.calls[key] = (name, args, named)
        return result

    method.__qualname__ = f"Connection.{name}"
    return method


_NOTED = {
    "create_function": (("name", "narg", "func"), "function"),
    "create_aggregate": (("name", "n_arg", "aggregate_class"), "function"),
    "create_window_function": (("name", "narg", "aggregate_class"), "function"),
    "create_collation": (("name", "callback"), "collation"),
    "set_trace_callback": (("trace_callback",), "handler"),
    "set_authorizer": (("authorizer_callback",), "handler"),
    "set_progress_handler": (("progress_handler", "n"), "handler"),
    "enable_load_extension": (("enable",), "extensions"),
}
for _name, _how in _NOTED.items():
    if hasattr(BASE, _name):
        setattr(Connection, _name, _noting(_name, *_how))


def notes_of(connection: object) -> Notes | None:
    """Return what was noted of a connection; None for one that Python's own class made."""
    return getattr(connection, "_replkernel_notes", None) if isinstance(connection, Connection) else None


@contextlib.contextmanager
def quiet(connection: object) -> Iterator[None]:
    """Take a connection's handlers off: they are told of every statement."""
    notes = notes_of(connection)
    handlers = list(notes.handlers.values()) if notes is not None else []
    for name, _, _ in handlers:
        getattr(BASE, name)(connection, *((None, 0) if name == "set_progress_handler" else (None,)))
    try:
        yield
    finally:
        for name, args, named in handlers:
            getattr(BASE, name)(connection, *args, **named)


def connect(*args: Any, **named: Any) -> object:
    """Open a connection that is noted, unless the notebook gives a factory of its own."""
    if len(args) <= _FACTORY_AT:
        named.setdefault("factory", Connection)
    try:
        return _sqlite3.connect(*args, **named)
    except BaseException as error:
        _hide(error)
        raise


connect.__module__ = "sqlite3"
connect.__doc__ = _sqlite3.connect.__doc__


def install() -> None:
    """Have `sqlite3` make connections that are noted, from now on."""
    for module in (sqlite3, sqlite3.dbapi2):
        if vars(module)["Connection"] is BASE:
            vars(module).update(Connection=Connection, connect=connect)
