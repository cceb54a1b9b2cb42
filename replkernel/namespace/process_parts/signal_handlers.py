"""``@signals``: signals that the notebook ignores or gives back to the system.

A Python handler or a running alarm cannot travel and is told as stuck. SIGINT is the kernel's own.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from replkernel.namespace.process_parts.part import Part
from replkernel.namespace.process_parts.plain import decode_plain, encode_plain
from replkernel.records import ComponentId

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

    def look(self) -> list[Any]:
        """Return the handler of each signal in order, and whether the real-time alarm runs."""
        return [*map(_getsignal, _NUMBERS), signal.getitimer(signal.ITIMER_REAL)[0] > 0]

    def pack(self, seen: list[Any]) -> bytes | None:
        """Write the signals that are ignored or reset since birth."""
        stuck = []
        for number, handler, birth in zip(_NUMBERS, seen, self._birth, strict=False):
            if handler is birth and number not in self._told:
                continue
            if isinstance(handler, int):
                self._told[number] = int(handler)
            elif handler is not birth and getattr(handler, "__module__", "") == "__main__":
                name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
                stuck.append(f"A Python function of the notebook handles {name}.")
        if seen[-1]:
            stuck.append("A timer of signal.setitimer() or signal.alarm() is running.")
        self.stuck = tuple(stuck)
        return encode_plain(sorted(self._told.items())) if self._told else None

    def apply(self, data: bytes) -> None:
        """Ignore or reset the told signals."""
        self._told = {int(number): int(handler) for number, handler in decode_plain(data)}
        for number, handler in self._told.items():
            signal.signal(number, signal.Handlers(handler))
