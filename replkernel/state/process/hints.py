"""``@hints``: what the user said of variables beforehand."""

from __future__ import annotations

from typing import Any

from replkernel.records import ComponentId
from replkernel.state import hints
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain


class HintsPart(Part[dict[str, Any]]):
    """The names of transient variables, and how often others are kept."""

    cid = ComponentId("@hints")

    def look(self) -> dict[str, Any]:
        """Return the names."""
        return {"transient": list(hints.transient), "kept": dict(hints.kept)}

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the names."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Replace the names by those of another replica; at first there was a list of transient ones."""
        told = decode_plain(data)
        told = told if type(told) is dict else {"transient": told}
        hints.transient.clear()
        hints.transient.update(dict.fromkeys(told["transient"]))
        hints.kept.clear()
        hints.kept.update(told.get("kept", {}))
