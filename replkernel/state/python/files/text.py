"""What a text file does not tell of itself: its newlines, and its place while it is read line by line.

`io.TextIOWrapper` keeps both in its memory only. Where they lie is found out with a sample file, once.
Law: what is read from memory is one of the objects that the file is known to hold.
"""

from __future__ import annotations

import codecs
import functools
import gc
import io
import os
import sys
from typing import Any

import msgspec

from replkernel.state.python.kinds import is_a, kind_of
from replkernel.state.python.memory_words import words_of

_HEAD = 16
_DECODERS = codecs.IncrementalDecoder, io.IncrementalNewlineDecoder
_SAMPLE_NEWLINE = "\r\n"
_ENDED = 1
"""The flag of a decoder that holds back a carriage return."""

PLAIN_CODECS = frozenset({"utf-8", "ascii", "iso8859-1", "cp1252"})
"""Encodings in which a text's bytes do not depend on what is before it."""


class _Layout(msgspec.Struct, frozen=True):
    """Where in a text file its newline is, the text that it has decoded, how much of that is read, what is to
    be written."""

    newline: int
    decoded: int
    used: int
    unwritten: int


def _words(file: object) -> Any:
    return words_of(file, io.TextIOWrapper, _HEAD)


@functools.cache
def _layout() -> _Layout | None:
    """Return the layout of this release of Python; None where it is not understood."""
    if sys.implementation.name != "cpython":
        return None
    text = "read, not read"
    with io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", newline=_SAMPLE_NEWLINE) as sample:
        sample.read(5)
        held = {value: id(value) for value in gc.get_referents(sample) if is_a(value, str)}
        words = list(_words(sample))
        places = [
            [at for at, word in enumerate(words) if word == held.get(value)]
            for value in (_SAMPLE_NEWLINE, text)
        ]
        if [len(found) for found in places] != [1, 1]:
            return None
        (newline,), (decoded,) = places
        unwritten = _place_of_unwritten()
        if unwritten is None or words[decoded + 1 : decoded + 2] != [5]:
            return None
        return _Layout(newline, decoded, decoded + 1, unwritten)


def _place_of_unwritten() -> int | None:
    """Return where a text file has what it has not written yet."""
    text = "not written"
    with io.TextIOWrapper(io.BytesIO(), "utf-8") as sample:
        sample.write(text)
        places = [at for at, word in enumerate(_words(sample)) if word == id(text)]
    return places[0] if len(places) == 1 else None


def unwritten_of(file: Any) -> str | None:
    """Return the text that was written to a file and has not left it yet; None where that is not known."""
    layout = _layout()
    if layout is None:
        return None
    word = _words(file)[layout.unwritten]
    held: Any = next((held for held in gc.get_referents(file) if id(held) == word), None if word else "")
    parts = held if type(held) is list else [held]
    if not all(kind_of(part) in (str, bytes) for part in parts):
        return None
    whole = b"".join(part.encode(file.encoding) if type(part) is str else part for part in parts)
    return whole.decode(file.encoding, file.errors)


def _text_at(file: object, place: int) -> str | None:
    """Return the text that a word of a file refers to; None where there is none."""
    word = _words(file)[place]
    return next((held for held in gc.get_referents(file) if id(held) == word and is_a(held, str)), None)


def newline_of(file: object) -> str | None:
    """Return what a text file was opened with as its newline."""
    layout = _layout()
    return _text_at(file, layout.newline) if layout is not None else None


def _decoder_of(file: object) -> Any:
    return next((held for held in gc.get_referents(file) if is_a(held, _DECODERS)), None)


def newlines_seen(file: io.TextIOWrapper | io.StringIO) -> tuple[str, ...]:
    """Return the newlines that have been read from a text file."""
    seen = file.newlines
    return (seen,) if isinstance(seen, str) else seen or ()


def remember_newlines(file: io.TextIOWrapper, seen: tuple[str, ...]) -> None:
    """Have a text file know which newlines have been read from it."""
    decoder = _decoder_of(file)
    if not seen or not isinstance(decoder, io.IncrementalNewlineDecoder):
        return
    before = decoder.getstate()
    pending, flags = codecs.getincrementaldecoder(file.encoding)().getstate()
    for newline in seen:
        decoder.setstate((pending, flags << 1))
        decoder.decode(newline.encode(file.encoding), True)
    decoder.setstate(before)


def place_of(file: Any, *, checked: bool = True) -> int | None:
    """Return where in its bytes a text file is that is read line by line; None where that cannot be told.

    What is still to be read is looked up on disk where it is `checked`.
    """
    layout = _layout()
    if layout is None or codecs.lookup(file.encoding).name not in PLAIN_CODECS:
        return None
    decoder = _decoder_of(file)
    rest = _text_at(file, layout.decoded)
    if decoder is None:
        return None
    if rest is None:
        return int(file.buffer.tell()) if not checked and not _words(file)[layout.decoded] else None
    pending, flags = decoder.getstate()
    if flags & _ENDED or (newline_of(file) is None and file.newlines not in (None, "\n")):
        return None
    data = rest[_words(file)[layout.used] :].encode(file.encoding, file.errors) + bytes(pending)
    place = int(file.buffer.tell()) - len(data)
    if not checked:
        return place if place >= 0 else None
    there = os.pread(file.fileno(), len(data), place) if place >= 0 else None
    return place if there == data else None
