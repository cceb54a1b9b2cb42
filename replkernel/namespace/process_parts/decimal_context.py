"""``@decimal``: the decimal context of the cells (precision, rounding, limits, traps, flags)."""

from __future__ import annotations

import sys
from typing import Any

from replkernel.namespace.process_parts.part import Part
from replkernel.namespace.process_parts.plain import decode_plain, encode_plain
from replkernel.records import ComponentId


class DecimalPart(Part[tuple[Any, ...]]):
    """``decimal.getcontext()`` of the context in which `dump` and `load` run."""

    cid = ComponentId("@decimal")
    library = "decimal"

    def look(self) -> tuple[Any, ...]:
        """Return the context's settings with the names of its traps and flags."""
        return _described(sys.modules["decimal"].getcontext())

    def pack(self, seen: tuple[Any, ...]) -> bytes:
        """Write the settings."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Set each setting of the context in force."""
        precision, rounding, emin, emax, capitals, clamp, traps, flags = decode_plain(data)
        decimal: Any = sys.modules["decimal"]
        context = decimal.getcontext()
        context.prec, context.rounding, context.Emin, context.Emax = precision, rounding, emin, emax
        context.capitals, context.clamp = capitals, clamp
        for signal in context.traps:
            context.traps[signal] = signal.__name__ in traps
            context.flags[signal] = signal.__name__ in flags


def _described(context: Any) -> tuple[Any, ...]:
    traps = tuple(sorted(signal.__name__ for signal, on in context.traps.items() if on))
    flags = tuple(sorted(signal.__name__ for signal, on in context.flags.items() if on))
    numbers = (context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp)
    return (*numbers, traps, flags)
