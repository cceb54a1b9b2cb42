"""Open files: path, mode and offset travel; the file itself must be there on the other host.

A file open for writing is flushed, so that the other process continues where this one stopped. It is opened
again without being truncated. A file that is closed stays closed.
"""

from __future__ import annotations

import codecs
import functools
import io
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.files import packed as packed_files
from replkernel.state.python.files.closed import closed_packed, packed_kind, told_of
from replkernel.state.python.files.file_paths import path_of
from replkernel.state.python.files.text import (
    PLAIN_CODECS,
    newline_of,
    newlines_seen,
    place_of,
    remember_newlines,
    unwritten_of,
)
from replkernel.state.restore.loading import absent

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


_WRITING = frozenset("wax+")


def _raw(file: object) -> Any:
    buffer = file.buffer if isinstance(file, io.TextIOWrapper) else file
    return buffer if isinstance(buffer, io.FileIO) else getattr(buffer, "raw", None)


def reduce_file(pickler: UnitContext, file: Any) -> object:
    """Reduce a file that `open` returned."""
    try:
        raw = _raw(file)
    except ValueError:
        raise CannotTravel("The file was detached from its buffer.") from None
    if isinstance(file, io.TextIOWrapper) and (packed := packed_kind(file.buffer)):
        if not file.closed:
            return packed_files.reduce_text(pickler, file)
        return closed_packed, (packed, told_of(file.buffer), (file.encoding, file.errors))
    if (memory := memory_below(file)) is not None:
        return reduce_stream(pickler, file, memory)
    if not isinstance(raw, io.FileIO):
        raise CannotTravel("Only files on disk can be opened again elsewhere.")
    kind, name = type(file).__name__, raw.name
    if kind not in _KINDS:
        raise CannotTravel("Only files that `open` returned can be opened again elsewhere.")
    text: tuple[Any, ...] = ()
    if isinstance(file, io.TextIOWrapper):
        ways = file.line_buffering, file.write_through, newline_of(file)
        text = (file.encoding, file.errors, *ways, newlines_seen(file))
    mode = str(getattr(file, "mode", raw.mode))
    if file.closed:
        return closed_file, (kind, str(name), mode, text[:2])
    if isinstance(file, tempfile._TemporaryFileWrapper) or not isinstance(name, (str, bytes, os.PathLike)):
        raise CannotTravel("The file has no path, so it cannot be opened again elsewhere.")
    path = path_of(raw)
    del raw
    if _are_parts_held(file):
        raise CannotTravel("Something else holds the buffer below the file, or what is below that.")
    if _WRITING & set(mode):
        file.flush()
    return reopen, (kind, os.fsdecode(name), path, mode, _offset(file), text, pickler.world.replica)


def _holders(file: Any) -> tuple[int, ...]:
    """Return how many hold the parts of a file: its buffer and what is below that."""
    if isinstance(file, io.FileIO):
        return ()
    if isinstance(file, io.TextIOWrapper):
        return sys.getrefcount(file.buffer), *_holders(file.buffer)
    return (sys.getrefcount(file.raw),)


@functools.cache
def _own_holders(kind: str, mode: str) -> tuple[int, ...]:
    """Return how many hold the parts of a file that nobody else knows of."""
    raw = _binary(kind, os.devnull, mode)
    with io.TextIOWrapper(raw) if kind == "TextIOWrapper" else raw as file:
        del raw
        return _holders(file)


def _are_parts_held(file: Any) -> bool:
    """Tell whether somebody else may read or write by a part of a file, and so move the file."""
    mode = file.mode.replace("b", "").replace("t", "").replace("U", "") if isinstance(file.mode, str) else "r"
    return _holders(file) != _own_holders(type(file).__name__, mode)


def _offset(file: Any) -> int:
    try:
        return int(file.tell())
    except OSError as error:
        place = place_of(file) if isinstance(file, io.TextIOWrapper) else None
        if place is None:
            raise CannotTravel(f"The file's position cannot be told ({error}).") from None
        return place


def _binary(kind: str, path: str, mode: str) -> Any:
    """Open a file as `mode` did, but for making or truncating it: the descriptor is there before the mode."""
    kept = next((letter for letter in "xaw" if letter in mode), "r")
    both = "+" in mode
    flags = os.O_RDWR if both else os.O_RDONLY if kept == "r" else os.O_WRONLY
    descriptor = os.open(path, flags | (os.O_APPEND if kept == "a" else 0))
    raw = io.FileIO(descriptor, kept + "+" * both)
    if kind == "FileIO":
        return raw
    if both:
        return io.BufferedRandom(raw)
    return io.BufferedReader(raw) if kept == "r" else io.BufferedWriter(raw)


def _keep_contents(path: str, flags: int) -> int:
    return os.open(path, (flags | os.O_CLOEXEC) & ~(os.O_TRUNC | os.O_EXCL | os.O_CREAT))


@loader("files:reopen")
def reopen(
    kind: str, name: str, path: str, mode: str, offset: int, text: tuple[Any, ...], replica: str
) -> Any:
    """Open a file again where it stood; a tombstone when it is not here (called by payloads)."""
    try:
        file = _binary(kind, path, mode)
        raw = file if kind == "FileIO" else file.raw
        raw.name = name
        if kind == "TextIOWrapper":
            encoding, errors, by_line, through, newline, seen = text
            file = io.TextIOWrapper(file, encoding, errors, newline, by_line, through)
            file.mode = mode  # type: ignore[misc]
        file.seek(offset)
        if kind == "TextIOWrapper":
            remember_newlines(file, seen)
        return file
    except OSError as error:
        reason = f"The file {path} could not be opened here ({error})."
        return absent(path, f"file open with mode {mode!r}", replica, reason)


@loader("files:closed_file")
def closed_file(kind: str, name: str, mode: str, text: tuple[Any, ...]) -> object:
    """Return a closed file (called by payloads)."""
    file: Any = _binary(kind, os.devnull, mode)
    raw = file if kind == "FileIO" else file.raw
    raw.name = name
    if kind == "TextIOWrapper":
        file = io.TextIOWrapper(file, text[0], text[1])
        file.mode = mode
    file.close()
    return file


def reduce_memory_file(pickler: UnitContext, file: Any) -> object:
    """Reduce a StringIO or BytesIO; a closed one, which pickle refuses, to a closed one."""
    if file.closed:
        return closed_memory_file, (type(file),)
    if type(file) is not io.StringIO or not (seen := newlines_seen(file)):
        return NotImplemented
    return io.StringIO, (), (file.__getstate__(), seen), None, None, fill_text


@loader("files:fill_text")
def fill_text(file: Any, state: tuple[Any, tuple[str, ...]]) -> None:
    """Give a StringIO its text, and what has been seen of newlines in it (called by payloads)."""
    held, seen = state
    file.__setstate__(held)
    place, end = file.tell(), file.seek(0, os.SEEK_END)
    file.writelines(seen)
    file.seek(end)
    file.truncate()
    file.seek(place)


@loader("files:closed_memory_file")
def closed_memory_file(cls: type[Any]) -> object:
    """Return a closed file in memory (called by payloads)."""
    file = cls()
    file.close()
    return file


_KINDS = ("TextIOWrapper", "BufferedReader", "BufferedWriter", "BufferedRandom", "FileIO")
FAMILIES = [
    (io.TextIOWrapper, reduce_file),
    (io.BufferedReader, reduce_file),
    (io.BufferedWriter, reduce_file),
    (io.BufferedRandom, reduce_file),
    (io.FileIO, reduce_file),
]
EXACT: dict[type, Any] = {io.StringIO: reduce_memory_file, io.BytesIO: reduce_memory_file}


# Readers and writers over bytes in memory (`io.TextIOWrapper(io.BytesIO())`): made anew over these.
#
# Law: nothing is flushed, moved or read; what cannot be told without that stays where it is.


_BUFFERED = {kind.__name__: kind for kind in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)}
_UNTRANSLATED = (None, "", "\n")


def memory_below(file: object) -> io.BytesIO | None:
    """Return the bytes in memory that a file reads or writes itself; None for any other file."""
    below = file.buffer if isinstance(file, io.TextIOWrapper) else getattr(file, "raw", None)
    return below if type(below) is io.BytesIO else None


def reduce_stream(pickler: UnitContext, file: Any, memory: io.BytesIO) -> object:
    """Reduce a file over bytes in memory."""
    kind = type(file)
    if kind is not io.TextIOWrapper and _BUFFERED.get(kind.__name__) is not kind:
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


def _told_of_text(file: io.TextIOWrapper, memory: io.BytesIO) -> tuple[Any, ...]:
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
) -> object:
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
def open_buffered(kind: type[Any], memory: io.BytesIO, place: int) -> object:
    """Return a buffered file over bytes in memory, at its place (called by payloads)."""
    end = memory.tell()
    memory.seek(place)
    file = kind(memory)
    if place < end:
        file.peek(1)
    return file


@loader("files:fill_stream")
def fill_stream(file: object, attributes: dict[str, Any]) -> None:
    """Give a file its attributes (called by payloads)."""
    vars(file).update(attributes)


@loader("files:closed_stream")
def closed_stream(kind: type[Any]) -> object:
    """Return a closed file over bytes in memory (called by payloads)."""
    file = kind(io.BytesIO())
    file.close()
    return file
