"""Instances of library classes and their children that pickle would part from what they share, or change.

A ``__getstate__`` that copies an array is right for a pickle, but an array that a variable holds too is to
stay the instance's own. A ``__new__`` that chooses a class by its arguments is given none by pickle, and
one of a text or a number is given its value alone, where it may want more.
Law: what is put back is equal to the copy, bit by bit and item by item; any other state stays as it is told.
"""

from __future__ import annotations

import copyreg
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import Reducer
from replkernel.state.python.kinds import entry_of
from replkernel.state.python.paths import instance_dict

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

PROTOCOL = 5
_MISSING = object()
_NEW_OBJECT: Any = copyreg.__dict__["__newobj__"]
_VALUES = (str, bytes, int, float, complex, tuple)


def plan(cls: type) -> Reducer | None:
    """Return the reducer for a class with a ``__getstate__`` or ``__new__`` in Python; or None."""
    if entry_of(copyreg.dispatch_table, cls) is not None:
        return None
    base = _value_that_new_refuses(cls)
    if base is not None:
        return _plan_for_value(base)
    told: tuple[Any, ...] = getattr(cls, "__getstate__", None), cls.__new__
    return reduce_told if any(type(part) is types.FunctionType for part in told) else None


def reduce_told(pickler: UnitContext, value: Any) -> Any:
    """Reduce an instance as its class does, but for the class and for what it holds itself."""
    reduced = value.__reduce_ex__(PROTOCOL)
    if type(reduced) is not tuple:
        return reduced
    function, arguments, *rest = reduced
    if function is _NEW_OBJECT and len(arguments) == 1 and type(type(value).__new__) is types.FunctionType:
        function = make_of_class
    if rest:
        rest[0] = _with_own(rest[0], instance_dict(value))
    reduced = (function, arguments, *rest)
    return pickler.checked(value, reduced) if pickler.careful else reduced


def _value_that_new_refuses(cls: Any) -> type | None:
    """Return the builtin class whose value alone pickle would give to a ``__new__`` which wants more."""
    if type(cls.__new__) is not types.FunctionType:
        return None
    told = getattr(cls, "__getnewargs__", None)
    base = next((base for base in _VALUES if told is vars(base)["__getnewargs__"]), None)
    if base is None:
        return None
    try:
        inspect.signature(cls.__new__, follow_wrapped=False).bind(cls, None)
    except TypeError:
        return base
    return None


def _plan_for_value(base: type) -> Reducer:
    """Return the reducer for what is made past its ``__new__``, by that of its builtin class."""

    def reduce_value(pickler: UnitContext, value: Any) -> Any:
        reduced = reduce_told(pickler, value)
        if type(reduced) is not tuple or reduced[0] is not _NEW_OBJECT or len(reduced[1]) != 2:
            return reduced
        (cls, plain), *rest = reduced[1:]
        return make_of_value, (base, cls, plain), *rest

    return reduce_value


@loader("library_instances:make_of_value")
def make_of_value(base: Any, cls: Any, plain: Any) -> Any:
    """Return an instance of a child of a builtin class with a value (called by payloads)."""
    return base.__new__(cls, plain)


@loader("library_instances:make_of_class")
def make_of_class(cls: Any) -> Any:
    """Return an instance of a class, also where its ``__new__`` makes another one (called by payloads)."""
    made = cls.__new__(cls)
    return made if type(made) is cls else object.__new__(cls)


def _with_own(state: Any, held: dict[str, Any] | None) -> Any:
    """Return a state with what the instance holds in the places of equal copies."""
    if type(state) is not dict or held is None or state is held:
        return state
    own = {
        name: mine
        for name, told in state.items()
        if told is not (mine := held.get(name, _MISSING)) and _is_copy(told, mine)
    }
    return {**state, **own} if own else state


def _is_copy(told: Any, held: Any) -> bool:
    """Tell whether what is told is a copy of something mutable that the instance holds: not that itself."""
    if type(told) is not type(held):
        return False
    if type(told) is list:
        return len(told) == len(held) and all(map(_is, told, held))
    if type(told) is dict:
        return len(told) == len(held) and all(map(_are, told.items(), held.items()))
    if type(told) is bytearray:
        return bool(told == held)
    return _is_array(told) and _have_same_bytes(told, held)


def _is(one: object, other: object) -> bool:
    return one is other


def _are(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return one[0] is other[0] and one[1] is other[1]


def _is_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def _have_same_bytes(one: Any, other: Any) -> bool:
    same_form = one.dtype == other.dtype and one.shape == other.shape
    return same_form and not one.dtype.hasobject and one.tobytes() == other.tobytes()
