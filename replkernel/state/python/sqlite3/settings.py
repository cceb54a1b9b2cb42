"""What a connection to SQLite is set to, read and set again without the notebook noticing.

Only what differs from a connection just made is told: to set more, a file would have to be read where it
comes to, while somebody writes to it.
"""

from __future__ import annotations

import _sqlite3
import functools
from typing import Any

from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.sqlite3 import layout as sqlite_layout
from replkernel.state.python.sqlite3 import library as sqlite

Settings = tuple[tuple[str, str], ...]

_OF_CONNECTION = (
    "encoding",
    "foreign_keys",
    "recursive_triggers",
    "query_only",
    "read_uncommitted",
    "reverse_unordered_selects",
    "automatic_index",
    "cell_size_check",
    "checkpoint_fullfsync",
    "fullfsync",
    "full_column_names",
    "short_column_names",
    "empty_result_callbacks",
    "count_changes",
    "ignore_check_constraints",
    "legacy_alter_table",
    "trusted_schema",
    "writable_schema",
    "defer_foreign_keys",
    "threads",
    "analysis_limit",
    "temp_store",
    "wal_autocheckpoint",
    "cache_spill",
)
_OF_SCHEMA = (
    "page_size",
    "auto_vacuum",
    "cache_size",
    "synchronous",
    "secure_delete",
    "max_page_count",
    "mmap_size",
    "journal_mode",
    "journal_size_limit",
)
_IN_HEADER = frozenset({"page_size", "auto_vacuum"})
"""What a database that has pages says itself."""

_LASTING = frozenset({("journal_mode", "wal")})
"""What a file keeps for all its connections."""

_LIKE = "case_sensitive_like"
"""A setting that cannot be asked for, but tried."""


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def read(connection: int, schemas: list[tuple[str, str]], tries_like: bool) -> Settings:
    """Return the settings of a connection and of its databases that are not as they are at first.

    `schemas` are names and kinds: what a new database of the kind is opened as. `tries_like` unless LIKE is
    the user's.
    """
    first = _first(":memory:")
    pragmas = [(f"PRAGMA {name}", name, first) for name in _OF_CONNECTION]
    for schema, kind in schemas:
        has_pages = sqlite.run(connection, f"PRAGMA {quoted(schema)}.page_count") != [("0",)]
        pragmas += [
            (f"PRAGMA {quoted(schema)}.{name}", name, _first(kind))
            for name in _OF_SCHEMA
            if not has_pages or name not in _IN_HEADER
        ]
    settings = []
    for pragma, name, at_first in pragmas:
        value = _value(connection, pragma)
        if value is not None and value != at_first.get(name) and (name, value) not in _LASTING:
            settings.append((pragma, value))
    if tries_like and sqlite.run(connection, "SELECT 'a' LIKE 'A'") == [("0",)]:
        settings.append((f"PRAGMA {_LIKE}", "1"))
    return tuple(settings)


def _value(connection: int, pragma: str) -> str | None:
    rows = sqlite.run(connection, pragma)
    return rows[0][0] if rows and rows[0] else None


@functools.cache
def _first(kind: str) -> dict[str, str | None]:
    """Return what a connection just made is set to."""
    made = _sqlite3.Connection(kind)
    try:
        names = (*_OF_CONNECTION, *_OF_SCHEMA)
        return {name: _value(sqlite_layout.handle(made), f"PRAGMA {name}") for name in names}
    finally:
        made.close()


def check(connection: int, schema: str) -> None:
    """Raise CannotTravel for a file that this connection keeps from all others."""
    if sqlite.run(connection, f"PRAGMA {quoted(schema)}.locking_mode") == [("exclusive",)]:
        raise CannotTravel("It keeps its database locked, so no other process can open that.")


def put(connection: int, wanted: Settings) -> None:
    """Set a connection that was just made as another one was."""
    for pragma, value in wanted:
        if pragma.endswith(_LIKE) or sqlite.run(connection, pragma) != [(value,)]:
            text = value if value.lstrip("-").isdigit() else quoted(value)
            sqlite.run(connection, f"{pragma} = {text}")


def put_limits(made: Any, limits: tuple[int, ...]) -> None:
    """Set the limits of a connection that was just made; they may be too small for its schema to be read."""
    now = sqlite.limits(sqlite_layout.handle(made))
    changed = [pair for pair in enumerate(limits) if pair[1] != now[pair[0]]]
    if changed:
        sqlite.run(sqlite_layout.handle(made), "SELECT 1 FROM sqlite_master LIMIT 0")
    for number, limit in changed:
        _sqlite3.Connection.setlimit(made, number, limit)


def configured(connection: Any) -> tuple[tuple[int, bool], ...]:
    """Return the switches that Python 3.12 and later tell of."""
    if not hasattr(connection, "getconfig"):
        return ()
    return tuple((number, bool(connection.getconfig(number))) for number in _switches())


def configure(connection: Any, switches: tuple[tuple[int, bool], ...]) -> None:
    """Set the switches of a connection that was just made."""
    for number, wanted in switches:
        if bool(connection.getconfig(number)) != wanted:
            connection.setconfig(number, wanted)


def _switches() -> list[int]:
    import sqlite3

    prefix, not_one = "SQLITE_DBCONFIG_", "SQLITE_DBCONFIG_RESET_DATABASE"
    return sorted(
        value for name, value in vars(sqlite3).items() if name.startswith(prefix) and name != not_one
    )
