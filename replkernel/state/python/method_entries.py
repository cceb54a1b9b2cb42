"""Functions of a notebook's classes stay the objects that they are when their class arrives once more.

Bound methods elsewhere refer to them by class and name, and are not told again when something else of the
class changes: they would no longer be equal to the class's own, nor found by their hash.
Law: whoever else holds such a function is in the same component, and rebuilt with it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from replkernel.state.python.kinds import kind_of
from replkernel.state.python.methods import mangled
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

Entry = tuple[str, tuple[str, ...]]
"""The name under which classes have a function, which is its own, and the ids of these classes."""

_DICT = type.__dict__["__dict__"]
_CLOSURE_AT = 72
_WORD_BYTES = 8


def entry_of(pickler: UnitContext, function: types.FunctionType) -> tuple[Entry, ...]:
    """Return where a class of this unit has a function, as an argument of `make_function`."""
    if not pickler.own_classes:
        return ()
    entries = pickler.notes.entries
    if entries is None:
        entries = pickler.notes.entries = _entries(pickler)
    found = entries.get(id(function))
    return () if found is None else (found,)


def _entries(pickler: UnitContext) -> dict[int, Entry]:
    """Return where the classes of a unit have functions; texts are those that the unit has already."""
    found: dict[int, Entry] = {}
    for id_ in sorted(pickler.own_classes):
        cls = pickler.world.classes.find(id_)
        if cls is None:
            continue
        class_id = pickler.world.class_id(cls)
        for name, value in _DICT.__get__(cls).items():
            function = _function(value)
            if function is None or name not in (own := function.__name__, mangled(function, own)):
                continue
            _, class_ids = found.get(id(function), (own, ()))
            found[id(function)] = own if name == own else name, (*class_ids, class_id)
    return found


def _function(value: Any) -> types.FunctionType | None:
    if kind_of(value) in (classmethod, staticmethod):
        value = value.__func__
    return value if type(value) is types.FunctionType else None


def present(entry: Entry, scope: dict[str, Any]) -> types.FunctionType | None:
    """Return the function that a class of this process has there, if it is one of the same globals."""
    name, class_ids = entry
    for class_id in class_ids:
        cls = loading.current().classes.find(class_id)
        function = None if cls is None else _function(_DICT.__get__(cls).get(name))
        if function is not None and function.__globals__ is scope:
            return function
    return None


def renew(function: types.FunctionType, code: types.CodeType, name: str, closure: object) -> bool:
    """Give a function that is here its code and cells; False when that cannot be done."""
    if function.__closure__ is not closure:
        if not _readable():
            return False
        _exchange(function, closure)
    function.__code__ = code
    function.__name__ = name
    return True


def _word(function: object) -> Any:
    return ctypes.c_size_t.from_address(id(function) + _CLOSURE_AT)


@functools.cache
def _readable() -> bool:
    """Tell whether functions lie in memory as is known here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _WORD_BYTES:
        return False

    def sample() -> Any:
        return _word

    def inner() -> Any:
        return sample

    return bool(_word(inner).value == id(inner.__closure__) and not _word(_word).value)


def _exchange(function: types.FunctionType, closure: object) -> None:
    """Have a function refer to other cells, or to none."""
    before = _word(function).value
    if closure is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(closure))
    _word(function).value = 0 if closure is None else id(closure)
    if before:
        ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(before))
