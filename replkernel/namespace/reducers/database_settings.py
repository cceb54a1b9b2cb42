"""What a connection to SQLite is set to: pragmas and limits, read and set again without the notebook noticing.

Only what differs from a connection just made is set; what is in a database's own file is not looked at twice.
"""

from __future__ import annotations

from typing import Any

from replkernel.namespace import sqlite_library as sqlite
from replkernel.namespace.reducers.outcome import CannotTravel

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
_LIKE = "case_sensitive_like"
"""A setting that cannot be asked for, but tried."""


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def read(connection: int, schemas: list[str], tries_like: bool) -> Settings:
    """Return the settings of a connection and of its databases; `tries_like` unless LIKE is the user's."""
    found = [(f"PRAGMA {name}", name) for name in _OF_CONNECTION]
    found += [(f"PRAGMA {quoted(schema)}.{name}", name) for schema in schemas for name in _OF_SCHEMA]
    settings = []
    for pragma, _ in found:
        rows = sqlite.run(connection, pragma)
        if rows and rows[0] and rows[0][0] is not None:
            settings.append((pragma, rows[0][0]))
    if tries_like and sqlite.run(connection, "SELECT 'a' LIKE 'A'") == [("0",)]:
        settings.append((f"PRAGMA {_LIKE}", "1"))
    return tuple(settings)


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
