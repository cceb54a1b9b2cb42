"""``@counters``: numbers that libraries hand out one after the other, and that must not come twice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.libraries.index import libraries
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain


class CountersPart(Part[dict[str, int]]):
    """Counters of symbols and of hooks: another process goes on where this one is."""

    cid = ComponentId("@counters")

    def __init__(self) -> None:
        self._waits: dict[str, int] = {}
        super().__init__()

    def look(self) -> dict[str, int]:
        """Return the counters by their modules."""
        self._go_on()
        found = {module: int(getattr(owner, name)) for module, owner, name in _counters()}
        return {**self._waits, **found}

    def pack(self, seen: dict[str, int]) -> bytes | None:
        """Write the counters once something has been counted."""
        return encode_plain(seen) if any(seen.values()) else None

    def apply(self, data: bytes) -> None:
        """Go on counting where another process was, as soon as the library is there."""
        self._waits.update(decode_plain(data))
        self._go_on()

    def settle(self) -> bool:
        """Set the counters of libraries that were imported since."""
        done = super().settle()
        if self._waits:
            self._go_on()
            self._seen = self.look()
        return done

    def _go_on(self) -> None:
        for module, owner, name in _counters() if self._waits else ():
            told = self._waits.pop(module, 0)
            setattr(owner, name, max(told, int(getattr(owner, name))))


def _counters() -> Iterator[tuple[str, Any, str]]:
    """Find the counters of the libraries that are imported; the first of a module goes by its name alone."""
    met: set[str] = set()
    for counter in (counter for library in libraries() for counter in library.counters):
        told = f"{counter.module}:{counter.owner}.{counter.name}" if counter.module in met else counter.module
        met.add(counter.module)
        found: Any = sys.modules.get(counter.module, object)
        held = vars(found).get(counter.owner) if counter.owner else found
        if held is not None and counter.name in vars(held):
            yield told, held, counter.name
