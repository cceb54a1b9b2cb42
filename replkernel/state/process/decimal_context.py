"""``@decimal``: the decimal context of the cells (precision, rounding, limits, traps, flags)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain


class DecimalPart(Part[str]):
    """``decimal.getcontext()`` of the context in which `dump` and `load` run."""

    cid = ComponentId("@decimal")
    library = "decimal"

    def look(self) -> str:
        """Return decimal's own description of the context, which names every setting, trap and flag."""
        decimal: Any = sys.modules["decimal"]
        return str(decimal.Context.__repr__(decimal.getcontext()))

    def pack(self, seen: str) -> bytes:
        """Write the settings with the names of the traps and flags."""
        return encode_plain(described(sys.modules["decimal"].getcontext()))

    def apply(self, data: bytes) -> None:
        """Set each setting of the context in force."""
        adjust(sys.modules["decimal"].getcontext(), decode_plain(data))


def adjust(context: Any, told: Sequence[Any]) -> None:
    """Set each setting of a context."""
    precision, rounding, emin, emax, capitals, clamp, traps, flags = told
    context.prec, context.rounding, context.Emin, context.Emax = precision, rounding, emin, emax
    context.capitals, context.clamp = capitals, clamp
    for signal in context.traps:
        context.traps[signal] = signal.__name__ in traps
        context.flags[signal] = signal.__name__ in flags


def described(context: Any) -> list[Any]:
    """Return a context's settings, with the names of its traps and flags."""
    traps = sorted(signal.__name__ for signal, on in context.traps.items() if on)
    flags = sorted(signal.__name__ for signal, on in context.flags.items() if on)
    numbers = (context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp)
    return [*numbers, traps, flags]
