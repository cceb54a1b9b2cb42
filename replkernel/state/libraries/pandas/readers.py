"""pandas' readers of a file of separated values, part-way: opened again, past the rows that were read.

Law: only of a file on disk that pandas has opened itself, and of its parser in C; nothing is read again
through functions of the notebook, which would be called once more for each replica.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING, Any

from pandas.io.parsers.readers import TextFileReader

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.files.file_paths import path_of
from replkernel.state.python.kinds import is_a
from replkernel.state.restore.loading import absent

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

ROWS_MAX = 5_000_000
"""A reader that is further on than this is not read on up to there."""

PIECE_ROWS = 50_000
"""So many rows that were read are in memory at a time."""


def reduce_reader(pickler: UnitContext, reader: TextFileReader) -> object:
    """Reduce a reader to its file, its options and its place."""
    pickler.module_needed("pandas")
    held = vars(reader)
    handles = held.get("handles")
    handle = getattr(handles, "handle", None)
    raw = getattr(getattr(handle, "buffer", handle), "raw", None)
    if held.get("engine") != "c" or handles.is_wrapped or not isinstance(raw, io.FileIO):
        raise CannotTravel("Only pandas' own readers of files on disk can be opened again elsewhere.")
    closed = bool(raw.closed)
    path = os.path.abspath(os.fsdecode(raw.name)) if closed else path_of(raw)
    if not os.path.isfile(path):
        raise CannotTravel(f"The file {path} is no longer at its path.")
    if held["_currow"] > ROWS_MAX:
        raise CannotTravel(f"It is more than {ROWS_MAX} rows on its way.")
    if held["_currow"] and _calls(held["orig_options"]):
        raise CannotTravel("What it has read went through functions, which would be called again.")
    options = {**held["orig_options"], "chunksize": held["chunksize"], "nrows": held["nrows"]}
    ended = bool(getattr(held["_engine"], "_exhausted", closed))
    return open_reader, (path, options, held["_currow"], (ended, closed), pickler.world.replica)


def _calls(options: dict[str, Any]) -> bool:
    """Tell whether there are functions among the options, or in one."""
    held = list(options.values())
    held += [value for option in held if is_a(option, dict) for value in option.values()]
    return any(callable(value) and not is_a(value, type) for value in held)


@loader("pandas-readers:open_reader")
def open_reader(
    path: str, options: dict[str, Any], row: int, over: tuple[bool, bool], replica: str
) -> object:
    """Return a reader that has read as many rows (called by payloads)."""
    try:
        reader = TextFileReader(path, engine="c", **options)
    except OSError as error:
        return absent(
            path, "reader of pandas", replica, f"The file {path} could not be opened here ({error})."
        )
    for start in range(0, row, PIECE_ROWS):
        reader.read(min(PIECE_ROWS, row - start))
    ended, closed = over
    if ended:
        with contextlib.suppress(StopIteration):
            reader.get_chunk(1)
    if closed:
        reader.close()
    return reader


FAMILIES = [(TextFileReader, reduce_reader)]
