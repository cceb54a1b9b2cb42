"""``@interpreter``: limits and switches of the interpreter itself.

Garbage collection is left out: it changes speed only, and a capture may switch it off for its own time.
"""

from __future__ import annotations

import locale
import signal
import sys
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.patches.given import is_given, remember_birth
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


# ``@signals``: signals that the notebook ignores or gives back to the system.
#
# A handler in Python is a place (`patches/given`); a running alarm cannot travel and is told as stuck. SIGINT
# is the kernel's own.

_OWN = frozenset({int(signal.SIGINT)})
_NUMBERS = tuple(sorted(int(number) for number in signal.valid_signals() if int(number) not in _OWN))
_getsignal = vars(sys.modules["_signal"])["getsignal"]
"""The handler of a signal as a plain number or a callable, without the detour through enumerations."""


class SignalsPart(Part[list[Any]]):
    """What the process does on each signal, and whether an alarm is set."""

    cid = ComponentId("@signals")

    def __init__(self) -> None:
        self._told: dict[int, int] = {}
        super().__init__()
        self._birth = list(self._seen or ())
        remember_birth()

    def look(self) -> list[Any]:
        """Return the handler of each signal in order, and whether the real-time alarm runs."""
        return [*map(_getsignal, _NUMBERS), signal.getitimer(signal.ITIMER_REAL)[0] > 0]

    def pack(self, seen: list[Any]) -> bytes | None:
        """Write the signals that are ignored or reset since birth."""
        for number, handler, birth in zip(_NUMBERS, seen, self._birth, strict=False):
            if handler is birth and number not in self._told:
                continue
            if isinstance(handler, int):
                self._told[number] = int(handler)
            elif is_given(handler):
                self._told.pop(number, None)
        self.stuck = ("A timer of signal.setitimer() or signal.alarm() is running.",) if seen[-1] else ()
        return encode_plain(sorted(self._told.items())) if self._told or self._data is not None else None

    def apply(self, data: bytes) -> None:
        """Ignore or reset the told signals."""
        self._told = {int(number): int(handler) for number, handler in decode_plain(data)}
        for number, handler in self._told.items():
            signal.signal(number, signal.Handlers(handler))

    def revert(self) -> None:
        """Have the signals that were told do what they did at birth."""
        first = dict(zip(_NUMBERS, self._birth, strict=False))
        plain = {number: int(first[number]) for number in self._told if isinstance(first[number], int)}
        if plain:
            self.load(encode_plain(sorted(plain.items())))
