"""numpy arrays as memory: addresses, flags and classes, looked at and made without running a user's code.

Law: imported only when numpy is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from replkernel.loaders import loader
from replkernel.state.python import instances
from replkernel.state.python.kinds import derives
from replkernel.state.unwarned import unwarned

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]


Array: TypeAlias = "np.ndarray[Any, Any]"


class Blank(np.ndarray):
    """What an instance of a subclass is made as: its class is set afterwards, and nothing of it has run."""


class Memory:
    """Stands for memory that no known object owns."""

    __slots__ = ("data", "keep", "size")

    def __init__(self, data: bytes | int, keep: object, size: int) -> None:
        self.data = data
        self.keep = keep
        self.size = size


def address(values: Array) -> int:
    """Return the address of an array's first element."""
    return int(values.__array_interface__["data"][0])


def flat_bytes(values: object) -> Any:
    """Return the bytes of an array that is contiguous in one order, as a flat uint8 array over them."""
    plain = np.asarray(values)
    rows = plain if plain.flags.c_contiguous else plain.T
    return rows.reshape(-1).view(np.uint8)


def is_one_block(values: Array) -> bool:
    """Tell whether an array is contiguous in one order or the other."""
    return bool(values.flags.c_contiguous or values.flags.f_contiguous)


def axes_of_block(values: Array) -> tuple[int, ...] | None:
    """Return the order of axes in which an array is one block of memory; None when it is none."""
    axes = tuple(sorted(range(values.ndim), key=lambda axis: -values.strides[axis]))
    return axes if np.asarray(values).transpose(axes).flags.c_contiguous else None


def writeable(values: Array) -> bool:
    """Tell whether an array may be written; numpy warns of those that `broadcast_arrays` made."""
    if 0 not in values.strides:
        return bool(values.flags.writeable)
    with unwarned():
        return bool(values.flags.writeable)


@contextlib.contextmanager
def unlocked(owner: object, wanted: bool) -> Iterator[None]:
    """Let a view of a read-only array be made that may be written, if `wanted`."""
    if not wanted or not isinstance(owner, np.ndarray) or owner.flags.writeable:
        yield
        return
    owner.flags.writeable = True
    try:
        yield
    finally:
        owner.flags.writeable = False


def class_of(values: object) -> type | None:
    """Return an array's class unless it is the plain one."""
    cls = type(values)
    return None if cls is np.ndarray else cls


def attributes_of(values: object) -> dict[str, Any] | None:
    """Return what a subclass's instance has beside its elements."""
    attributes = getattr(values, "__dict__", None) if type(values) is not np.ndarray else None
    return dict(attributes) if attributes else None


def in_slots(values: object) -> dict[str, Any]:
    """Return what a subclass's instance has in slots."""
    cls = type(values)
    return instances.held_in(values, instances.slots_of(cls)) if cls is not np.ndarray else {}


def has_slots(cls: type) -> bool:
    """Tell whether a subclass says which slots its instances have, if any."""
    return any(
        "__slots__" in _DICT.__get__(base) for base in _MRO.__get__(cls) if not derives(np.ndarray, base)
    )


def new_array(cls: Any, *args: Any, **named: Any) -> Any:
    """Return an array of a class, made of what `ndarray` takes, without its ``__array_finalize__``."""
    if cls is None or cls is np.ndarray:
        return np.ndarray.__new__(np.ndarray, *args, **named)
    if has_slots(cls):  # of another layout in memory: only its own `__array_finalize__` makes it
        return np.ndarray.__new__(cls, *args, **named)
    return in_class(np.ndarray.__new__(Blank, *args, **named), cls)


def in_class(made: Any, cls: object) -> Any:
    """Give an array its class; a plain one becomes a view."""
    if cls is None:
        return made
    blank = made if type(made) is Blank else made.view(Blank)
    try:
        blank.__class__ = cls
    except TypeError:  # a class with slots of its own
        return blank.view(cls)
    return blank


@loader("numpy:fill_attributes")
def fill_attributes(values: Array, state: dict[str, Any]) -> None:
    """Give an instance of a subclass its attributes (called by payloads)."""
    vars(values).update(state)


@loader("numpy:fill_slots")
def fill_slots(values: Array, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
    """Give an instance of a subclass its attributes, and what it had in slots (called by payloads)."""
    attributes, slots = state
    if attributes:
        fill_attributes(values, attributes)
    instances.fill_slots(values, slots)
