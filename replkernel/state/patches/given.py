"""Functions that the notebook gave to a library by a call which keeps them out of reach: handlers of
signals, numpy's formatters and what it calls on floating point errors, what the running event loop makes its
tasks with and gives its errors to. Each is a place.

What is plain of such settings is told by the parts of the process's state, and SIGINT is the kernel's own.
Law: looking costs a few microseconds and imports nothing.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

from replkernel.state.libraries.numpy import functions as numpy_functions
from replkernel.state.python.asyncio.callbacks import running_loop
from replkernel.state.python.kinds import is_a, module_of
from replkernel.state.tombstone import is_tombstone

SIGNALS = "signal", "signal"

LOOP_MODULE = "asyncio"
LOOP_GIVEN_TO = {
    "exception handler": "AbstractEventLoop.set_exception_handler",
    "task factory": "AbstractEventLoop.set_task_factory",
}
"""What a notebook gives to its event loop, and by which call."""

KEPT_UNDER = {"exception handler": "_exception_handler", "task factory": "_task_factory"}
"""And the attributes in which the loop keeps it."""

handler_of = vars(sys.modules["_signal"])["getsignal"]
"""The handler of a signal as a plain number or a callable, without the detour through enumerations."""

_NUMBERS = tuple(sorted(int(number) for number in signal.valid_signals() if number != signal.SIGINT))
_THEIRS = frozenset({"asyncio", "faulthandler", "ipykernel", "IPython", "replkernel", "torch", "tornado"})
"""Libraries that handle signals for themselves, in the process where they do."""

born: dict[int, Any] = {}
"""The handlers of signals that the process had at first."""


def remember_birth() -> None:
    """Take the handlers of signals now as the process's own."""
    born.update(zip(_NUMBERS, map(handler_of, _NUMBERS), strict=True))


def is_given(handler: object) -> bool:
    """Tell whether a signal's handler is a function that the notebook may have given."""
    if not callable(handler) or is_a(handler, int):
        return False
    return _home_of(handler).partition(".")[0] not in _THEIRS


def _home_of(handler: Any) -> str:
    """Return the module of a callable, which is not asked itself."""
    kind = type(handler)
    if kind is types.MethodType:
        return _home_of(handler.__func__)
    if kind is types.FunctionType or kind is types.BuiltinFunctionType:
        return str(handler.__module__)
    return module_of(handler if is_a(handler, type) else kind)


def changed_entries() -> Iterator[tuple[str, str, str]]:
    """Yield what was given but to numpy: the module, the function that it was given to, and which it is."""
    for number, first in born.items():
        handler = handler_of(number)
        if handler is not first and is_given(handler):
            yield (*SIGNALS, signal.Signals(number).name)
    if (loop := running_loop()) is not None:
        for name, kept in KEPT_UNDER.items():
            if vars(loop)[kept] is not None and is_given(vars(loop)[kept]):
                yield LOOP_MODULE, LOOP_GIVEN_TO[name], name


def read(key: str) -> Any:
    """Return what was given; None when nothing is, or what the parts tell."""
    if key in numpy_functions.GIVEN_TO:
        return numpy_functions.read(key)
    if key in LOOP_GIVEN_TO:
        held = getattr(running_loop(), KEPT_UNDER[key], None)
        return held if is_given(held) else None
    handler = handler_of(signal.Signals[key])
    return handler if is_given(handler) else None


def put(key: str, value: Any) -> None:
    """Give a library what another process's has."""
    if key in numpy_functions.GIVEN_TO:
        numpy_functions.put(key, value)
    elif key in LOOP_GIVEN_TO:
        if is_tombstone(value):
            raise LookupError(f"the event loop's {key} was lost: run its cell again")
        loop: Any = asyncio.get_running_loop()
        give = loop.set_task_factory if key == "task factory" else loop.set_exception_handler
        give(value)
    else:
        number = signal.Signals[key]
        signal.signal(number, born.get(number, signal.SIG_DFL) if value is None else value)


def remove(key: str) -> None:
    """Take back what was given, unless a part has told something else."""
    if read(key) is not None:
        put(key, None)
