"""``@interpreter``: limits and switches of the interpreter itself.

Garbage collection is left out: it changes speed only, and a capture may switch it off for its own time.
"""

from __future__ import annotations

import locale
import sys
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain

NO_LIMIT = -1


class InterpreterPart(Part[tuple[Any, ...]]):
    """Recursion limit, longest integer text, switch interval, bytecode writing, traceback limit."""

    cid = ComponentId("@interpreter")

    def look(self) -> tuple[Any, ...]:
        """Return the limits and switches."""
        return (
            sys.getrecursionlimit(),
            sys.get_int_max_str_digits(),
            sys.getswitchinterval(),
            sys.dont_write_bytecode,
            getattr(sys, "tracebacklimit", NO_LIMIT),
        )

    def pack(self, seen: tuple[Any, ...]) -> bytes:
        """Write them."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Set them."""
        recursion, digits, interval, no_bytecode, traceback_limit = decode_plain(data)
        sys.setrecursionlimit(recursion)
        sys.set_int_max_str_digits(digits)
        sys.setswitchinterval(interval)
        sys.dont_write_bytecode = no_bytecode
        if traceback_limit != NO_LIMIT:
            sys.tracebacklimit = traceback_limit
        elif hasattr(sys, "tracebacklimit"):
            del sys.tracebacklimit


# ``@locale``: the C library's locale, once the notebook changed it.


class LocalePart(Part[str]):
    """``locale.setlocale``; a host without that locale keeps its own and says so."""

    cid = ComponentId("@locale")

    def look(self) -> str:
        """Return the locale of all categories."""
        return locale.setlocale(locale.LC_ALL)

    def pack(self, seen: str) -> bytes:
        """Write the locale's name."""
        return seen.encode()

    def apply(self, data: bytes) -> None:
        """Set the locale of all categories."""
        try:
            locale.setlocale(locale.LC_ALL, data.decode())
        except locale.Error:
            self.trouble = (
                f"The locale {data.decode()} is not installed on this host; install it or use another."
            )
