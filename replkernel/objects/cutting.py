"""Where a blob is cut into chunks: at fixed places from the buffer's start; text where its content says.

Text that grows or shrinks in the middle keeps the chunks around the edit. Numbers change in place, where
fixed cuts do as well and cost nothing. Law: no byte of a buffer is copied or read twice here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

CHUNK_BYTES = 2 << 20
"""Blobs are cut every so many bytes.

With half of it an upload to S3 takes 1.7 times the CPU, with twice of it 0.8 times; for files and hashes all
are alike, and the smaller a chunk, the less is written again when one element changes.
"""

TEXT_BYTES_MIN = 1 << 19
TEXT_BYTES_AVERAGE = 1 << 20
TEXT_BYTES_MAX = 4 << 20
"""Text is cut into pieces of these sizes; an edit writes one or two of them again."""

SAMPLES = 16
SAMPLE_BYTES = 256
"""A buffer is taken for text when so many samples of so many bytes, spread over it, hold nothing else."""

_TEXT_BYTES = bytes(sorted({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\n\v\f\r\x1b"}))


def cut(view: memoryview) -> Iterator[memoryview]:
    """Yield the pieces of a buffer, cut at fixed places."""
    for start in range(0, len(view), CHUNK_BYTES):
        yield view[start : start + CHUNK_BYTES]


def cut_by_content(view: memoryview, start: int = 0) -> Iterator[memoryview]:
    """Yield the pieces of a buffer from `start`, a place where it was cut before, on.

    A piece depends on its own bytes alone, unless it is the last one. Where the library has no compiled part
    for this machine, all cuts are at fixed places.
    """
    kind = _chunker()
    if kind is None:
        yield from cut(view[start:])
        return
    chunker = kind(TEXT_BYTES_AVERAGE, min_size=TEXT_BYTES_MIN, max_size=TEXT_BYTES_MAX)
    end = start
    for piece in chunker.cut_buf(view[start:]):
        begin, end = end, end + piece.length
        yield view[begin:end]


def looks_like_text(view: memoryview) -> bool:
    """Tell from samples whether a buffer holds text in UTF-8 or one of the old one-byte encodings."""
    size = len(view)
    if size <= SAMPLES * SAMPLE_BYTES:
        return not bytes(view).translate(None, _TEXT_BYTES)
    step = (size - SAMPLE_BYTES) // (SAMPLES - 1)
    starts = range(0, size - SAMPLE_BYTES + 1, step)
    return not any(bytes(view[at : at + SAMPLE_BYTES]).translate(None, _TEXT_BYTES) for at in starts)


@functools.cache
def _chunker() -> Any:
    """Return the class of chunkers, or None where it would be a hundred times slower than writing."""
    from pyfastcdc import FastCDC

    return FastCDC if ".cy." in FastCDC.__module__ else None


def windows_of(parts: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the bytes of `parts` in windows of CHUNK_BYTES; only the last one is shorter."""
    window = bytearray()
    for part in parts:
        start = 0
        while start < len(part):
            end = min(len(part), start + CHUNK_BYTES - len(window))
            with memoryview(part) as view:
                window += view[start:end]
            start = end
            if len(window) == CHUNK_BYTES:
                yield bytes(window)
                window.clear()
    if window:
        yield bytes(window)
