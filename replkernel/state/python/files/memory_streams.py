"""Readers and writers over bytes in memory (`io.TextIOWrapper(io.BytesIO())`): made anew over these.

Law: nothing is flushed, moved or read; what cannot be told without that stays where it is.
"""

from __future__ import annotations

import codecs
import io
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.files.text import (
    PLAIN_CODECS,
    newline_of,
    newlines_seen,
    place_of,
    remember_newlines,
    unwritten_of,
)

if TYPE_CHECKING:
    from replkernel.state.capture.pickling import CapturePickler

_KINDS = {kind.__name__: kind for kind in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)}
_UNTRANSLATED = (None, "", "\n")


def memory_below(file: Any) -> io.BytesIO | None:
    """Return the bytes in memory that a file reads or writes itself; None for any other file."""
    below = file.buffer if isinstance(file, io.TextIOWrapper) else getattr(file, "raw", None)
    return below if type(below) is io.BytesIO else None


def reduce_stream(pickler: CapturePickler, file: Any, memory: io.BytesIO) -> Any:
    """Reduce a file over bytes in memory."""
    kind = type(file)
    if kind is not io.TextIOWrapper and _KINDS.get(kind.__name__) is not kind:
        raise CannotTravel("Its class reads bytes in memory in a way of its own.")
    if file.closed:
        return closed_stream, (kind,)
    attributes = vars(file) or None
    if kind is io.TextIOWrapper:
        return open_text, (memory, *_told_of_text(file, memory)), attributes, None, None, fill_stream
    place, end = file.tell(), memory.tell()
    ahead = end - place
    if ahead and not (kind is io.BufferedReader and _is_at_end(memory) and ahead <= io.DEFAULT_BUFFER_SIZE):
        raise CannotTravel("How much of the bytes below it has read ahead or not yet written cannot be told.")
    return open_buffered, (kind, memory, place), attributes, None, None, fill_stream


def _is_at_end(memory: io.BytesIO) -> bool:
    with memory.getbuffer() as view:
        return memory.tell() >= len(view)


def _told_of_text(file: Any, memory: io.BytesIO) -> tuple[Any, ...]:
    """Return where the next character begins, what is still to be written, and how the file was opened."""
    unwritten, newline = unwritten_of(file), newline_of(file)
    if codecs.lookup(file.encoding).name not in PLAIN_CODECS or unwritten is None:
        raise CannotTravel("How far a text in this encoding has been read cannot be told.")
    if unwritten and newline not in _UNTRANSLATED:
        raise CannotTravel("What is not yet written of its text cannot be told.")
    place = place_of(file, checked=False)
    if place is None or (place != memory.tell() and not place):
        raise CannotTravel("How far its text has been read cannot be told.")
    ways = file.encoding, file.errors, newline, file.line_buffering, file.write_through
    return place, unwritten, ways, newlines_seen(file)


@loader("files:open_text")
def open_text(
    memory: io.BytesIO, place: int, unwritten: str, ways: tuple[Any, ...], seen: tuple[str, ...]
) -> Any:
    """Return a text file over bytes in memory; it has decoded what they have given (called by payloads)."""
    end = memory.tell()
    file: Any = io.TextIOWrapper(memory, *ways)
    if place < end:
        before = _character_before(memory, place, file.encoding)
        size, file._CHUNK_SIZE = file._CHUNK_SIZE, end - before
        file.seek(before)
        file.read(1)
        file._CHUNK_SIZE = size
    remember_newlines(file, seen)
    if unwritten:
        file.write(unwritten)
    return file


def _character_before(memory: io.BytesIO, place: int, encoding: str) -> int:
    """Return where the character begins that ends at a place."""
    if codecs.lookup(encoding).name != "utf-8":
        return place - 1
    with memory.getbuffer() as view:
        return next((at for at in range(place - 1, -1, -1) if view[at] & 0xC0 != 0x80), 0)


@loader("files:open_buffered")
def open_buffered(kind: Any, memory: io.BytesIO, place: int) -> Any:
    """Return a buffered file over bytes in memory, at its place (called by payloads)."""
    end = memory.tell()
    memory.seek(place)
    file = kind(memory)
    if place < end:
        file.peek(1)
    return file


@loader("files:fill_stream")
def fill_stream(file: Any, attributes: dict[str, Any]) -> None:
    """Give a file its attributes (called by payloads)."""
    vars(file).update(attributes)


@loader("files:closed_stream")
def closed_stream(kind: Any) -> Any:
    """Return a closed file over bytes in memory (called by payloads)."""
    file = kind(io.BytesIO())
    file.close()
    return file
