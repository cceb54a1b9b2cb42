"""Functions that the notebook gave to a library by a call which keeps them out of reach: handlers of
signals, numpy's formatters and what it calls on floating point errors. Each is a place.

What is plain of such settings is told by the parts of the process's state, and SIGINT is the kernel's own.
Law: looking costs a few microseconds and imports nothing.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

from replkernel.namespace.kinds import is_a
from replkernel.namespace.patches import numpy_functions

SIGNALS = "signal", "signal"

_getsignal = vars(sys.modules["_signal"])["getsignal"]
"""The handler of a signal as a plain number or a callable, without the detour through enumerations."""

_NUMBERS = tuple(sorted(int(number) for number in signal.valid_signals() if number != signal.SIGINT))
_THEIRS = frozenset({"asyncio", "faulthandler", "ipykernel", "IPython", "replkernel", "torch", "tornado"})
"""Libraries that handle signals for themselves, in the process where they do."""

_born: dict[int, Any] = {}


def remember_birth() -> None:
    """Take the handlers of signals now as the process's own."""
    _born.update(zip(_NUMBERS, map(_getsignal, _NUMBERS), strict=True))


def is_given(handler: Any) -> bool:
    """Tell whether a signal's handler is a function that the notebook may have given."""
    if not callable(handler) or is_a(handler, int):
        return False
    return str(getattr(handler, "__module__", "")).partition(".")[0] not in _THEIRS


def changed_entries() -> Iterator[tuple[str, str, str]]:
    """Yield what was given: the module, the function that it was given to, and which it is."""
    for number, first in _born.items():
        handler = _getsignal(number)
        if handler is not first and is_given(handler):
            yield (*SIGNALS, signal.Signals(number).name)
    for name in numpy_functions.held():
        yield numpy_functions.MODULE, numpy_functions.GIVEN_TO[name], name


def read(key: str) -> Any:
    """Return what was given; None when nothing is, or what the parts tell."""
    if key in numpy_functions.GIVEN_TO:
        return numpy_functions.read(key)
    handler = _getsignal(signal.Signals[key])
    return handler if is_given(handler) else None


def put(key: str, value: Any) -> None:
    """Give a library what another process's has."""
    if key in numpy_functions.GIVEN_TO:
        numpy_functions.put(key, value)
    else:
        number = signal.Signals[key]
        signal.signal(number, _born.get(number, signal.SIG_DFL) if value is None else value)


def remove(key: str) -> None:
    """Take back what was given, unless a part has told something else."""
    if read(key) is not None:
        put(key, None)
