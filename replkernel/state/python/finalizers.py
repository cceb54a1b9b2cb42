"""Keeps the finalizers of replaced objects from running: what they stand for lives on in another process.

Law: only instances of classes with ``__del__`` (the notebook's, and those of libraries that a capture has
met: an open archive would write its end into the file), progress bars (which print when they die), coroutines
that nobody awaited and objects with watchers are looked for, and only when there are such.
"""

from __future__ import annotations

import contextvars
import gc
import inspect
import logging
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from replkernel.state.python import watchers
from replkernel.state.python.kinds import Classes, is_a, kind_of
from replkernel.state.python.paths import instance_dict

OBJECTS_MAX = 1_000_000

_OUTLIVING = (
    *(type, types.ModuleType, types.CodeType, types.FrameType, types.TracebackType, contextvars.Context),
    *(str, bytes, bytearray, int, float, logging.Logger, logging.Manager),
)
"""What refers to these does not keep them, or what they hold, alive on its own."""

_ATOMS = frozenset({int, float, bool, complex, str, bytes, type(None)})

_LIBRARY_CALLS = frozenset({"multiprocessing.util", "tempfile"})

_met = Classes()
"""The classes of libraries with finalizers whose instances this process has dumped; of coroutines too."""

_CLASS = object.__dict__["__class__"]
_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_NAME = type.__dict__["__name__"]


def has_finalizer(cls: type) -> bool:
    """Tell whether instances of `cls` run Python code when they die."""
    return any(
        isinstance(_DICT.__get__(base).get("__del__"), types.FunctionType) for base in _MRO.__get__(cls)
    )


def meet(cls: type) -> None:
    """Note that the notebook has instances of a library's class with a finalizer."""
    _met.add(cls)


def _silent(_self: object) -> None:
    """Stand in for a finalizer."""


def silence(values: Iterable[Any], classes: Iterable[type], outside: Callable[[], set[int]]) -> list[Any]:
    """Keep quiet what would run when `values` die: ``__del__`` of `classes`, calls of `weakref.finalize`.

    What has an id among those that `outside` returns does not die with what refers to it. Return those whose
    death a weak reference would tell: they must outlive it.
    """
    bars = _progress_bars()
    wanted = {id(cls): cls for cls in (*classes, *bars.values(), *_met) if has_finalizer(cls)}
    calls = {id(target): call for call in list(_registry()) if (target := _target(call)) is not None}
    watched: list[Any] = []
    if not wanted and not calls and not watchers.any_met() and types.CoroutineType not in _met:
        return watched
    queue = list(values)
    seen = outside()
    while queue and len(seen) < OBJECTS_MAX:
        value = queue.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        queue.extend(one for one in _below(value) if kind_of(one) not in _ATOMS)
        if id(value) in calls:
            calls[id(value)].detach()
        if watchers.is_watched(value):
            watched.append(value)
        kind = type(value)
        if id(kind) in wanted:
            _make_husk(value, kind)
        if kind is types.CoroutineType and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
            value.close()
        if id(kind) in bars:
            getattr(kind, "_instances", set()).discard(value)
    return watched


def outlived(watched: list[Any], *, finally_: bool) -> list[Any]:
    """Let go of those of `watched` that nobody watches any more; return the others.

    `finally_` lets go of those as well: the notebook is not called any more, and libraries are not when they
    are collected together with what watches for them.
    """
    rest = [value for value in watched if watchers.is_watched(value)]
    if not finally_ or not rest:
        return rest
    for value in rest:
        watchers.silence(value)
    rest.append(rest)
    return []


def _progress_bars() -> dict[int, type]:
    """Return tqdm's class and those derived from it by their ids, once it is imported."""
    bar = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    found: list[type] = [bar] if is_a(bar, type) else []
    for cls in found:
        derived: list[type] = type.__subclasses__(cls)
        found.extend(derived)
    return {id(cls): cls for cls in found}


def _registry() -> dict[Any, Any]:
    return weakref.finalize._registry  # type: ignore[attr-defined, no-any-return]


def _target(call: object) -> object:
    """Return the object of a finalizer whose call the notebook made."""
    entry = _registry().get(call)
    return None if entry is None or is_librarys(entry) else entry.weakref()


def is_librarys(entry: Any) -> bool:
    """Tell whether a library's object made the call of a finalizer, and makes its own where it is copied."""
    return getattr(entry.func, "__module__", None) in _LIBRARY_CALLS


def _below(value: Any) -> Iterable[Any]:
    """Return what may die with `value`: keys, closures and what iterators hold included."""
    kind = type(value)
    if issubclass(kind, _OUTLIVING):
        return ()
    if kind is types.FunctionType:
        return (value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value))
    if kind is types.GeneratorType or kind is types.CoroutineType:
        frame = value.gi_frame if kind is types.GeneratorType else value.cr_frame
        return [] if frame is None else list(frame.f_locals.values())
    arrays = getattr(sys.modules.get("numpy"), "ndarray", None)
    if arrays is not None and issubclass(kind, arrays):
        members = arrays.ravel(value, "K").tolist() if value.dtype.hasobject else ()
        return [instance_dict(value), value.base, *members]
    return gc.get_referents(value)


def _make_husk(value: object, kind: type) -> None:
    try:
        husk = type.__new__(type(kind), _NAME.__get__(kind), (kind,), {"__slots__": (), "__del__": _silent})
        _CLASS.__set__(value, husk)  # Its class may have a property of that name.
    except TypeError:
        return
