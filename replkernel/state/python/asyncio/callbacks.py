"""The callbacks that wait on the running event loop and are the notebook's: they bind it to their process.

The kernel has callbacks of its own there at all times, and a library that serves it may: a callback counts by
the function that runs in the end, below partials, contexts and tornado's wrappers. Steps of tasks, and what
wakes them, are the tasks' own, which are found themselves.
Law: nobody's code runs, no object's text is asked for; microseconds while nothing of the notebook waits.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
import types
from asyncio import mixins
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from replkernel.state.process.pins import OWN_ROOTS, SERVICE_ROOTS
from replkernel.state.python.kinds import is_a, module_of, qualname_of
from replkernel.state.python.paths import instance_dict


def running_loop() -> asyncio.BaseEventLoop | None:
    """Return that loop; None where none runs, or one of another library's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if is_a(loop, asyncio.BaseEventLoop) else None


LOOKED_AT_MAX = 1000
"""So many callbacks that are due, and so many for later, are looked at."""

DEPTH_MAX = 8
SOON_S = 1.0

NOTEBOOK = "__main__"
OTHERS_ROOTS = OWN_ROOTS | SERVICE_ROOTS | {"comm", "asyncio", "_asyncio", "concurrent", "nest_asyncio"}
"""Whose functions wait on the loop for the kernel's sake or a task's, or hold nothing of the notebook."""

_IN_C = frozenset({types.BuiltinFunctionType, type(re.compile("").match)})
"""A function in C, and a method that is told its class: as those of futures from Python 3.12 on."""
_OF_FUTURES = frozenset({"set_result", "set_exception", "cancel"})
"""What of a future a notebook has called later; all else that asyncio calls of its own is private."""

_STEP = "TaskStepMethWrapper"
_FUNC, _ARGS = (vars(functools.partial)[name].__get__ for name in ("func", "args"))
_function_dict = vars(types.FunctionType)["__dict__"].__get__

Call: TypeAlias = tuple[Any, tuple[Any, ...]]


class Waiting(NamedTuple):
    """A callback that waits: what runs, in words, and in how many seconds."""

    label: str
    in_s: float


def callbacks() -> Iterator[tuple[str, str, str]]:
    """Find the callbacks of the notebook that wait on the running event loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    scheduled = getattr(loop, "_scheduled", ())
    ready = getattr(loop, "_ready", ())
    if scheduled or ready:
        more = max(len(scheduled), len(ready)) > LOOKED_AT_MAX
        yield from told(waiting(scheduled, ready, loop.time()), time.time(), more=more)


def waiting(scheduled: Iterable[Any], ready: Iterable[Any], now: float) -> list[Waiting]:
    """Return those of the notebook among a loop's handles for later and those that are due."""
    found: list[Waiting] = []
    for handles, due in ((scheduled, False), (ready, True)):
        for handle in tuple(islice(handles, LOOKED_AT_MAX)):
            if handle._cancelled:
                continue
            call = innermost(handle._callback, handle._args or ())
            if is_the_notebooks(call):
                found.append(Waiting(label_of(call), 0.0 if due else handle._when - now))
    return found


def told(found: Iterable[Waiting], clock: float, *, more: bool = False) -> Iterator[tuple[str, str, str]]:
    """Return one pin for all that call the same, which says when the next of them runs.

    `clock` is the time of day; with `more`, there are callbacks that were not looked at.
    """
    by_label: dict[str, list[float]] = {}
    for label, in_s in found:
        by_label.setdefault(label, []).append(in_s)
    for label, times in by_label.items():
        first = max(min(times), 0.0)
        when = f"in {first:,.0f} s, at {time.strftime('%H:%M:%S', time.localtime(clock + first))}"
        if first < SOON_S:
            when = "at once"
        reason = f"A callback waits on the event loop: {label} {when}."
        if len(times) > 1:
            count = f"At least {len(times):,}" if more else f"{len(times):,}"
            reason = f"{count} callbacks wait on the event loop: {label}, the next {when}."
        yield f"callback {label}", "asyncio.Handle", reason


def innermost(callback: object, args: tuple[Any, ...]) -> object:
    """Return what runs in the end when a loop calls `callback`."""
    for _ in range(DEPTH_MAX):
        inside = _one_further(callback, args)
        if inside is None:
            break
        callback, args = inside
    return callback


def _one_further(callback: Any, args: tuple[Any, ...]) -> Call | None:
    """Return the call that a wrapper makes; None where `callback` is what runs."""
    kind = type(callback)
    if is_a(callback, functools.partial):
        return _FUNC(callback), (*_ARGS(callback), *args)
    if kind in _IN_C and type(callback.__self__) is Context and args:
        return args[0], args[1:]
    if kind is types.MethodType:
        return _wrapped_by_method(callback, args)
    if kind is types.FunctionType and home_of(callback).partition(".")[0] in OTHERS_ROOTS:
        return _wrapped_by_function(callback)
    return None


def _wrapped_by_method(method: types.MethodType, args: tuple[Any, ...]) -> Call | None:
    """Return what a method of tornado's calls: its loop's, and that of a periodic callback."""
    function = method.__func__
    if type(function) is not types.FunctionType or home_of(function).partition(".")[0] != "tornado":
        return None
    if function.__name__ == "_run_callback" and args:
        return args[0], args[1:]
    callback = (instance_dict(method.__self__) or {}).get("callback")
    return None if callback is None else (callback, ())


def _wrapped_by_function(function: types.FunctionType) -> Call | None:
    """Return what a decorated function wraps, or the coroutine that another thread has handed to the loop."""
    wrapped = _function_dict(function).get("__wrapped__")
    if wrapped is not None:
        return wrapped, ()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name in ("callback", "coro"):
            try:
                return cell.cell_contents, ()
            except ValueError:
                return None
    return None


def home_of(function: Callable[..., Any]) -> str:
    """Return the module of a function written in Python, by its globals."""
    name = dict.get(function.__globals__, "__name__")
    return name if type(name) is str else ""


def is_the_notebooks(call: Any) -> bool:
    """Tell whether what runs in the end is the notebook's, or something that it has called later."""
    kind = type(call)
    if kind is types.MethodType:
        owner, function = call.__self__, call.__func__
        if module_of(type(owner)) == NOTEBOOK:
            return True
        if type(function) is not types.FunctionType:
            return is_the_notebooks(function)
        is_public = not function.__name__.startswith("_")
        return not _is_others(home_of(function)) or (is_public and is_a(owner, mixins._LoopBoundMixin))
    if kind is types.FunctionType:
        return not _is_others(home_of(call))
    if kind is types.CoroutineType:
        frame = call.cr_frame
        return frame is not None and not _is_others(str(dict.get(frame.f_globals, "__name__")))
    if kind in _IN_C:
        owner = call.__self__
        if is_a(owner, asyncio.Future):
            return call.__name__ in _OF_FUTURES
        return owner is None or is_a(owner, types.ModuleType) or not _is_others(module_of(type(owner)))
    cls = call if is_a(call, type) else kind
    return not _is_others(module_of(cls)) and qualname_of(cls) != _STEP


def _is_others(module: str) -> bool:
    return module.partition(".")[0] in OTHERS_ROOTS


def label_of(call: Any) -> str:
    """Return what runs, in words."""
    kind = type(call)
    if kind is types.MethodType:
        return label_of(call.__func__)
    if kind is types.FunctionType or kind is types.CoroutineType:
        return str(call.__qualname__)
    if kind in _IN_C:
        owner = call.__self__
        if owner is None or is_a(owner, types.ModuleType):
            return str(call.__name__)
        return f"{qualname_of(owner if is_a(owner, type) else type(owner))}.{call.__name__}"
    return qualname_of(call if is_a(call, type) else kind)
