"""``@random``: the state of Python's ``random`` module.

Law: the generator's memory stands for its state only where both were found to agree, at birth.
"""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain

WORDS = 624
_STATE_BYTES = 4 * (WORDS + 1)
_STATE_AT = object.__basicsize__


class RandomPart(Part[tuple[Any, ...]]):
    """The generator behind ``random.random()``.

    Its place and words are read from memory, for ``getstate`` makes an integer object of each word.
    """

    cid = ComponentId("@random")

    def __init__(self) -> None:
        self._readable = _readable(_generator())
        """The generator whose memory can be read; None where it is laid out differently."""
        super().__init__()

    def look(self) -> tuple[Any, ...]:
        """Return the generator's state in the form that is cheapest to make."""
        generator = self._readable
        if generator is None or random.getstate.__self__ is not generator:  # type: ignore[attr-defined]
            return random.getstate()
        return generator.VERSION, _memory_of(generator), generator.gauss_next

    def pack(self, seen: tuple[Any, ...]) -> bytes:
        """Write the state's words as raw bytes."""
        version, words, gauss_next = random.getstate()
        return encode_plain((version, struct.pack(f"<{len(words)}I", *words), gauss_next))

    def apply(self, data: bytes) -> None:
        """Set the generator to a state."""
        version, raw, gauss_next = decode_plain(data)
        random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss_next))


def _generator() -> Any:
    """Return the object whose methods are the functions of ``random``; None where they are replaced."""
    return getattr(random.getstate, "__self__", None)


def _readable(generator: object) -> Any:
    """Return `generator` when its memory holds its place and words where they are known to be."""
    if type(generator) is not random.Random:
        return None
    base = random.Random.__mro__[1]
    if not _STATE_BYTES <= base.__basicsize__ - _STATE_AT < _STATE_BYTES + struct.calcsize("P"):
        return None
    words = random.Random.getstate(generator)[1]
    place_first = struct.pack("=i", words[-1]) + struct.pack(f"={WORDS}I", *words[:-1])
    return generator if _memory_of(generator) == place_first else None


def _memory_of(generator: object) -> bytes:
    return ctypes.string_at(id(generator) + _STATE_AT, _STATE_BYTES)
