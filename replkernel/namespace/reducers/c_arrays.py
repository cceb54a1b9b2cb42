"""Arrays of ctypes: their type by its elements and length, their bytes as they are.

Law: memory that is another object's, or nobody's, is not copied: the two would part without a word.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def is_array_type(cls: type) -> bool:
    """Tell whether a type is the one that ctypes keeps for arrays of some elements and length."""
    if type(cls) is not type(ctypes.Array):
        return False
    entries = type.__dict__["__dict__"].__get__(cls)
    kind, length = entries.get("_type_"), entries.get("_length_")
    return isinstance(kind, type) and type(length) is int and array_type(kind, length) is cls


def array_type(kind: Any, length: int) -> Any:
    """Return the type of arrays of so many elements (called by payloads)."""
    return kind * length


def reduce_array(pickler: CapturePickler, array: Any) -> Any:
    """Leave an array to ctypes when its memory is its own."""
    if array._b_base_ is not None or not array._b_needsfree_:
        raise CannotTravel("Its memory belongs to another object, with which a copy would not share it.")
    return NotImplemented


FAMILIES = [(ctypes.Array, reduce_array)]
