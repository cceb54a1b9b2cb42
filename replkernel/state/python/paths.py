"""The instance dictionary of an object, read past its class, and which mutable objects a stuck one holds.

Law: bounded walks; no user code runs, and a property that a class has under `__dict__` is never asked.
"""

from __future__ import annotations

import ctypes
import gc
import types
from collections.abc import Iterable
from typing import Any

from replkernel.state.python.kinds import is_a

_ENTRIES = type.__dict__["__dict__"]
_DICT_OFFSET = type.__dict__["__dictoffset__"]
_FLAGS = type.__dict__["__flags__"]

_get = ctypes.pythonapi.PyObject_GenericGetDict
_get.restype, _get.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
_set = ctypes.pythonapi.PyObject_GenericSetDict
_set.restype, _set.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
_MANAGED_DICT = 1 << 4
_set_managed: Any = getattr(ctypes.pythonapi, "_PyObject_SetManagedDict", None)
"""From Python 3.13 on: `_set` leaves the values in place that an object has beside its dictionary."""
if _set_managed is not None:
    _set_managed.restype, _set_managed.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.py_object)


class _Covered:
    """Stands for Python's own `__dict__` where a class has put something else in its place."""

    def __get__(self, instance: object, owner: object = None) -> Any:
        return _get(instance, None)

    def __set__(self, instance: object, attributes: dict[str, Any]) -> None:
        if _set_managed is not None and _FLAGS.__get__(type(instance)) & _MANAGED_DICT:
            _set_managed(instance, attributes)
        else:
            _set(instance, attributes, None)


_COVERED = _Covered()


def getter_among(mro: Iterable[type]) -> Any:
    """Return what reads and sets the dictionary of instances of the first of `mro`; None: they have none."""
    first = None
    for cls in mro:
        first = cls if first is None else first
        getter = _ENTRIES.__get__(cls).get("__dict__")
        if type(getter) is types.GetSetDescriptorType:
            return getter
        if getter is not None and _DICT_OFFSET.__get__(first):
            return _COVERED
    return None


def is_covered(mro: Iterable[type]) -> bool:
    """Tell whether a class has put something of its own in the place of its instances' `__dict__`."""
    return getter_among(mro) is _COVERED


HELD_MAX = 2_000
HELD_DEPTH_MAX = 4

_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def weak(value: object) -> bool:
    """Tell whether objects like `value` can be referred to weakly."""
    return bool(type.__dict__["__weakrefoffset__"].__get__(type(value)))


def hidden_dict(value: object) -> dict[str, Any] | None:
    """Return the dictionary of an object whose type does not show it; None if it has none."""
    found = _get(value, None) if _DICT_OFFSET.__get__(type(value)) else None
    return found if type(found) is dict else None


def instance_dict(value: object) -> dict[str, Any] | None:
    """Return the instance dictionary of `value` without asking its class; None when it has or tells none.

    A proxy, as of wrapt, gives that of what it stands for, which may have none.
    """
    getter = getter_among(type.__dict__["__mro__"].__get__(type(value)))
    if getter is None:
        return None
    try:
        found = getter.__get__(value)
    except Exception:
        return None
    return found if type(found) is dict else None


def held_by(value: object, namespace: dict[str, Any]) -> list[Any]:
    """Return objects that a stuck object refers to: whatever shares them belongs to its component."""
    found: list[Any] = []
    level = [value]
    seen = {id(value), id(namespace)}
    for _ in range(HELD_DEPTH_MAX):
        following: list[Any] = []
        for item in level:
            for held in gc.get_referents(item):
                if id(held) in seen or is_a(held, _OPAQUE) or len(found) >= HELD_MAX:
                    continue
                seen.add(id(held))
                if type(held) is dict and "__builtins__" in held:
                    continue
                if gc.is_tracked(held) or type(held) is bytearray:
                    found.append(held)
                    following.append(held)
        level = following
    return found
