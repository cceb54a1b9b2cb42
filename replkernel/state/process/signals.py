"""``@signals``: signals that the notebook ignores or gives back to the system.

A handler in Python is a place (`patches/given`); a running alarm cannot travel and is told as stuck. SIGINT
is the kernel's own.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.patches.given import is_given, remember_birth
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain

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
