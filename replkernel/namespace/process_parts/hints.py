"""``@hints``: what the user said of variables beforehand."""

from __future__ import annotations

from replkernel.namespace import hints
from replkernel.namespace.process_parts.part import Part
from replkernel.namespace.process_parts.plain import decode_plain, encode_plain
from replkernel.records import ComponentId


class HintsPart(Part[list[str]]):
    """The names of transient variables."""

    cid = ComponentId("@hints")

    def look(self) -> list[str]:
        """Return the names."""
        return list(hints.transient)

    def pack(self, seen: list[str]) -> bytes | None:
        """Write the names."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Replace the names by those of another replica."""
        hints.transient.clear()
        hints.transient.update(dict.fromkeys(decode_plain(data)))
