"""``@random``: the state of the standard library's global random generator."""

from __future__ import annotations

import random
import struct
from typing import Any

from replkernel.namespace.process_parts.part import Part
from replkernel.namespace.process_parts.plain import decode_plain, encode_plain
from replkernel.records import ComponentId


class RandomPart(Part[tuple[Any, ...]]):
    """The Mersenne Twister behind ``random.random()``; looking draws nothing from it."""

    cid = ComponentId("@random")

    def look(self) -> tuple[Any, ...]:
        """Return the generator's state."""
        return random.getstate()

    def pack(self, seen: tuple[Any, ...]) -> bytes:
        """Write the state's words as raw bytes."""
        version, words, gauss_next = seen
        return encode_plain((version, struct.pack(f"<{len(words)}I", *words), gauss_next))

    def apply(self, data: bytes) -> None:
        """Set the generator to a state."""
        version, raw, gauss_next = decode_plain(data)
        random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss_next))
