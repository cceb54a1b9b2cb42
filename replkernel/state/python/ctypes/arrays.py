"""The types of arrays of ctypes: by their elements and length."""

from __future__ import annotations

import ctypes
from typing import Any

from replkernel.loaders import loader


def is_array_type(cls: type) -> bool:
    """Tell whether a type is the one that ctypes keeps for arrays of some elements and length."""
    if type(cls) is not type(ctypes.Array):
        return False
    entries = type.__dict__["__dict__"].__get__(cls)
    kind, length = entries.get("_type_"), entries.get("_length_")
    return isinstance(kind, type) and type(length) is int and array_type(kind, length) is cls


@loader("ctypes:array_type")
def array_type(kind: Any, length: int) -> object:
    """Return the type of arrays of so many elements (called by payloads)."""
    return kind * length
