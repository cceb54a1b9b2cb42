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

from replkernel.namespace.process_parts.pandas_options import plain_format
from replkernel.namespace.process_parts.plain import is_plain

SIGNALS = "signal", "signal"
FORMATTER = "numpy", "set_printoptions", "formatter"
ON_ERROR = "numpy", "seterrcall", "function"

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
    if not callable(handler) or isinstance(handler, int):
        return False
    return str(getattr(handler, "__module__", "")).partition(".")[0] not in _THEIRS


def changed_entries() -> Iterator[tuple[str, str, str]]:
    """Yield what was given: the module, the function that it was given to, and which it is."""
    for number, first in _born.items():
        handler = _getsignal(number)
        if handler is not first and is_given(handler):
            yield (*SIGNALS, signal.Signals(number).name)
    numpy: Any = sys.modules.get("numpy")
    if hasattr(numpy, "geterrcall") and hasattr(numpy, "get_printoptions"):
        yield from (which for which in (FORMATTER, ON_ERROR) if read(which[-1]) is not None)


def is_plain_formatter(formatter: Any) -> bool:
    """Tell whether a table of numpy's formatters can be told without their functions."""
    return not formatter or is_plain({key: plain_format(one) for key, one in formatter.items()})


def read(key: str) -> Any:
    """Return what was given; None when nothing is, or what the parts tell."""
    if key == FORMATTER[-1]:
        formatter = sys.modules["numpy"].get_printoptions()["formatter"]
        return None if is_plain_formatter(formatter) else formatter
    if key == ON_ERROR[-1]:
        return sys.modules["numpy"].geterrcall()
    handler = _getsignal(signal.Signals[key])
    return handler if is_given(handler) else None


def put(key: str, value: Any) -> None:
    """Give a library what another process's has."""
    if key == FORMATTER[-1]:
        sys.modules["numpy"].set_printoptions(formatter=value)
    elif key == ON_ERROR[-1]:
        sys.modules["numpy"].seterrcall(value)
    else:
        number = signal.Signals[key]
        signal.signal(number, _born.get(number, signal.SIG_DFL) if value is None else value)


def remove(key: str) -> None:
    """Take back what was given, unless a part has told something else."""
    if read(key) is not None:
        put(key, None)
