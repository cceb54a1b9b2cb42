"""Arrow's writers of Parquet that are closed: what a ``with`` statement leaves in its variable.

Law: imported only when Arrow's Parquet is; what is open stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_OPEN = frozenset({"writer", "file_handle", "where"})
"""What of a writer is the process's own, or is its file."""


def reduce_writer(context: ReducerContext, writer: object) -> object:
    """Reduce a closed writer of Parquet."""
    held = vars(writer)
    if held.get("is_open", True):
        raise CannotTravel("A file of Parquet is written by this process only.")
    context.module_needed("pyarrow.parquet")
    state = {name: value for name, value in held.items() if name not in _OPEN}
    return closed_writer, (type(writer), held["schema"]), state, None, None, fill_writer


@loader("pyarrow-parquet:closed_writer")
def closed_writer(cls: type[Any], schema: object) -> object:
    """Return a writer that is closed (called by payloads)."""
    writer = cls(pyarrow.BufferOutputStream(), schema)
    writer.close()
    return writer


@loader("pyarrow-parquet:fill_writer")
def fill_writer(writer: object, state: dict[str, Any]) -> None:
    """Give a writer what it says of itself (called by payloads)."""
    vars(writer).update(state)


EXACT: dict[type, Any] = {pyarrow.parquet.ParquetWriter: reduce_writer}
