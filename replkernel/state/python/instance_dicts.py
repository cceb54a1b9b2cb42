"""How the dictionary of an instance is read and set past its class, whatever the class has under `__dict__`.

Law: no user code runs; a property of that name is never asked.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Iterable
from typing import Any

_ENTRIES = type.__dict__["__dict__"]
_DICT_OFFSET = type.__dict__["__dictoffset__"]

_get = ctypes.pythonapi.PyObject_GenericGetDict
_get.restype, _get.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
_set = ctypes.pythonapi.PyObject_GenericSetDict
_set.restype, _set.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.py_object, ctypes.c_void_p)


class _Covered:
    """Stands for Python's own `__dict__` where a class has put something else in its place."""

    def __get__(self, instance: object, owner: object = None) -> Any:
        return _get(instance, None)

    def __set__(self, instance: object, attributes: dict[str, Any]) -> None:
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
