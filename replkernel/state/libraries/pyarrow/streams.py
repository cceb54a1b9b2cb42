"""Arrow's streams: readers of bytes in memory, at their place; files and outputs in memory that are closed.

Law: imported only when pyarrow is; what is open and not in memory, or is written to, stays where it is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_file(context: ReducerContext, file: pyarrow.NativeFile) -> object:
    """Reduce a closed file."""
    if not file.closed:
        raise CannotTravel("A file that Arrow has opened is open in this process only.")
    context.module_needed("pyarrow")
    return closed_file, (type(file),)


@loader("pyarrow:closed_file")
def closed_file(cls: type[Any]) -> object:
    """Return a file that is closed (called by payloads)."""
    file = cls() if cls is pyarrow.MemoryMappedFile else cls(os.devnull, "rb")
    file.close()
    return file


def reduce_output(context: ReducerContext, output: pyarrow.NativeFile) -> object:
    """Reduce an output in memory that is closed: what was written to it."""
    if not output.closed:
        raise CannotTravel("What is written to an open output of Arrow is told once that is closed.")
    context.module_needed("pyarrow")
    return closed_output, (output.getvalue().to_pybytes(),)


@loader("pyarrow:closed_output")
def closed_output(written: bytes) -> object:
    """Return an output in memory that is closed (called by payloads)."""
    output = pyarrow.BufferOutputStream()
    output.write(written)
    output.close()
    return output


def reduce_reader(context: ReducerContext, reader: pyarrow.NativeFile) -> object:
    """Reduce a reader of bytes in memory: these bytes, and how far it is."""
    context.module_needed("pyarrow")
    if reader.closed:
        return closed_reader, ()
    place = reader.tell()
    reader.seek(0)
    try:
        whole = reader.read_buffer(reader.size())
    finally:
        reader.seek(place)
    return open_reader, (whole, place)


@loader("pyarrow:open_reader")
def open_reader(whole: object, place: int) -> object:
    """Return a reader at its place (called by payloads)."""
    reader = pyarrow.BufferReader(whole)
    reader.seek(place)
    return reader


@loader("pyarrow:closed_reader")
def closed_reader() -> object:
    """Return a reader that is closed (called by payloads)."""
    reader = pyarrow.BufferReader(b"")
    reader.close()
    return reader


EXACT: dict[type, Any] = {
    pyarrow.BufferOutputStream: reduce_output,
    pyarrow.BufferReader: reduce_reader,
    pyarrow.MemoryMappedFile: reduce_file,
    pyarrow.OSFile: reduce_file,
}
