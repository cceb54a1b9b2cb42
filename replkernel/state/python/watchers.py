"""Who is told when an object dies: the callbacks of weak references, WeakMethods and proxies to it.

Owns how a callback is read off a reference, and whether any was met. Law: nothing is called or kept alive
here, and what weak containers of the standard library tell themselves does not count.
"""

from __future__ import annotations

import ctypes
import gc
import types
import weakref

from replkernel.state.python.kinds import kind_of

_CALLBACK = weakref.ref.__dict__["__callback__"]
_OF_CONTAINERS = frozenset({"weakref", "_weakrefset"})
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)

_SLOT = 24
"""Where a weak reference keeps its callback, in bytes: behind the head of an object and what it refers to."""

_NOTEBOOK = "__main__"

_met: list[bool] = []


def meet(callback: object) -> None:
    """Note that an object of this process has a watcher."""
    if callback is not None and not _met:
        _met.append(True)


def any_met() -> bool:
    """Tell whether any object of the notebook had a watcher in this process."""
    return bool(_met)


def callback_of(reference: object) -> object:
    """Return what the maker of a weak reference wants to be called, or None."""
    kind = kind_of(reference)
    if kind in _PROXIES:
        return next(iter(gc.get_referents(reference)), None)
    callback = _CALLBACK.__get__(reference)
    if kind is weakref.WeakMethod:
        return _inner_callback(callback)
    return callback


def _inner_callback(own: object) -> object:
    """Return the user's callback out of the function that a WeakMethod wraps it in."""
    if type(own) is not types.FunctionType or own.__closure__ is None:
        return None
    cells = dict(zip(own.__code__.co_freevars, own.__closure__, strict=True))
    try:
        return cells["callback"].cell_contents
    except (KeyError, ValueError):
        return None


def library_of(callback: object) -> str | None:
    """Return the module that a callback's function is from; None if it is the notebook's, or no function."""
    if type(callback) is types.MethodType:
        callback = callback.__func__
    if type(callback) is not types.FunctionType or callback.__module__ == _NOTEBOOK:
        return None
    return callback.__module__


def is_watched(value: object) -> bool:
    """Tell whether somebody is told when `value` dies."""
    if issubclass(type(value), type) or not weakref.getweakrefcount(value):
        return False
    found = map(callback_of, weakref.getweakrefs(value))
    return any(callback is not None and library_of(callback) not in _OF_CONTAINERS for callback in found)


def silence(value: object) -> None:
    """Have nothing of the notebook's called when `value` dies.

    Garbage calls nobody only when an object and who watches it are collected at once, which is not so when a
    collection of the young ones lets go of an old one.
    """
    for reference in weakref.getweakrefs(value):
        callback = callback_of(reference)
        if callback is not None and library_of(callback) is None:
            _forget_callback(reference, callback)


def _forget_callback(reference: object, callback: object) -> None:
    """Take its callback off a reference, for which Python has no way; only if it lies where it should."""
    slot = ctypes.c_ssize_t.from_address(id(reference) + _SLOT)
    if slot.value == id(callback):
        slot.value = 0
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(callback))
