"""Connections to DuckDB that are closed: what a ``with`` statement leaves in its variable.

Law: imported only when DuckDB is; an open one stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_connection(context: ReducerContext, connection: duckdb.DuckDBPyConnection) -> object:
    """Reduce a closed connection."""
    try:
        connection.query_progress()  # A question that needs no transaction, and waits for no thread.
    except duckdb.ConnectionException:
        context.module_needed("duckdb")
        return closed_connection, ()
    raise CannotTravel("A connection to DuckDB belongs to the process that opened it.")


@loader("duckdb:closed_connection")
def closed_connection() -> object:
    """Return a connection that is closed (called by payloads)."""
    connection = duckdb.connect(":memory:")
    connection.close()
    return connection


EXACT: dict[type, Any] = {duckdb.DuckDBPyConnection: reduce_connection}
