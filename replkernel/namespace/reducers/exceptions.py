"""Exceptions: rebuilt without running a Python `__init__`, with cause, context, notes and a traceback.

The frames of a traceback do not travel; frames of the same files, functions and lines stand in for them.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

TRACEBACK_MAX = 200
_MRO = type.__dict__["__mro__"]
_FLAGS = type.__dict__["__flags__"]
_HEAP_TYPE = 1 << 9


def reduce_exception(pickler: CapturePickler, error: BaseException) -> Any:
    """Reduce an exception."""
    cls = type(error)
    reduced = error.__reduce__()
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        return reduced
    stock = BaseException.__reduce__
    own = next(
        (base.__dict__["__reduce__"] for base in _MRO.__get__(cls) if "__reduce__" in base.__dict__), stock
    )
    extra = (
        _lines_of(error.__traceback__),
        error.__cause__,
        error.__context__,
        error.__suppress_context__,
    )
    if isinstance(own, types.FunctionType) or reduced[0] is not cls:
        return (
            make_by_reduce,
            (reduced[0], reduced[1]),
            (reduced[2] if len(reduced) > 2 else None, *extra),
            None,
            None,
            fill,
        )
    state = dict(reduced[2]) if len(reduced) > 2 and isinstance(reduced[2], dict) else None
    return make, (cls, reduced[1]), (state, *extra), None, None, fill


def _lines_of(traceback: types.TracebackType | None) -> tuple[tuple[str, str, int], ...]:
    lines: list[tuple[str, str, int]] = []
    while traceback is not None and len(lines) < TRACEBACK_MAX:
        code = traceback.tb_frame.f_code
        lines.append((code.co_filename, code.co_name, traceback.tb_lineno))
        traceback = traceback.tb_next
    return tuple(lines)


def make(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Return an exception whose built-in part is initialised (called by payloads)."""
    error = cls.__new__(cls, *args)
    if not isinstance(error, cls):
        return error
    builtin: Any = next(base for base in _MRO.__get__(cls) if not _FLAGS.__get__(base) & _HEAP_TYPE)
    try:
        builtin.__init__(error, *args)
    except TypeError:
        error.args = args
    return error


def make_by_reduce(function: Any, args: tuple[Any, ...]) -> Any:
    """Return an exception as its class reduces it, or without `__init__` (called by payloads)."""
    try:
        return function(*args)
    except TypeError:
        if isinstance(function, type) and issubclass(function, BaseException):
            return make(function, args)
        raise


def fill(error: Any, extra: tuple[Any, ...]) -> None:
    """Give an exception its attributes and its story (called by payloads)."""
    state, lines, cause, context, suppressed = extra
    if state:
        if hasattr(type(error), "__setstate__"):
            error.__setstate__(state)
        else:
            vars(error).update(state)
    if lines:
        error.__traceback__ = _traceback(lines)
    error.__cause__ = cause
    error.__context__ = context
    error.__suppress_context__ = suppressed


def _traceback(lines: tuple[tuple[str, str, int], ...]) -> Any:
    following: Any = None
    for file, name, line in reversed(lines):
        code = compile("\n" * (max(line, 1) - 1) + "raise _Stop", file, "exec").replace(co_name=name)
        try:
            exec(code, {"_Stop": _Stop, "__name__": "__main__", "__file__": file})  # noqa: S102
        except _Stop as stop:
            own = stop.__traceback__
            assert own is not None
            assert own.tb_next is not None
            frame = own.tb_next
            following = types.TracebackType(following, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return following


class _Stop(Exception):
    """Raised to get a frame."""


def reduce_traceback(pickler: CapturePickler, traceback: types.TracebackType) -> Any:
    """Reduce a traceback to its lines."""
    return _traceback, (_lines_of(traceback),)


FAMILIES = [(BaseException, reduce_exception)]
EXACT = {types.TracebackType: reduce_traceback}
