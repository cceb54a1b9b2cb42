"""Variables of the user's modules, as places, and what calls have left in their functions and classes.

That is in attributes, in defaults that can change, in closures and in caches. Law: nobody's code runs.
"""

from __future__ import annotations

import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from enum import EnumType
from typing import Any

from replkernel.state.patches.book import UNKNOWN, Book
from replkernel.state.patches.own_modules import is_own, own_modules
from replkernel.state.patches.places import (
    ATTRIBUTE,
    CACHED,
    CELLS,
    DEFAULTS,
    KEYWORD_DEFAULTS,
    PLAIN,
    Absent,
    Place,
    attributes_of,
    cells_of,
)
from replkernel.state.python.cached_calls import WRAPPER
from replkernel.state.python.kinds import is_a, kind_of

_MODULE_DICT: Any = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_CLASS_DICT = type.__dict__["__dict__"]
_QUALNAME = type.__dict__["__qualname__"]
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_BOUND = (classmethod, staticmethod)
LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
"""What ``sys`` keeps of the last error that nobody caught."""
_OF_CLASSES = (
    *_BY_NAME,
    classmethod,
    staticmethod,
    property,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
_PLAIN_IN_CLASSES = frozenset(
    {*PLAIN, tuple, frozenset, list, dict, set, deque, defaultdict, OrderedDict, Counter}
)


def enter_places(book: Book, is_stray: Callable[[types.ModuleType], bool]) -> None:
    """Enter the variables of the user's modules but for strays, and what is kept of the last error."""
    for name in LAST_ERROR:
        if name in vars(sys):
            book.enter(Place(ATTRIBUTE, "sys", "", name), Absent)
    for module_name, module in own_modules():
        if is_stray(module):
            continue
        for place in _places_of(module_name, _MODULE_DICT.__get__(module)):
            book.enter(place, UNKNOWN)


def _places_of(module: str, attributes: dict[str, Any]) -> Iterator[Place]:
    for name, value in list(attributes.items()):
        if not name.startswith("__") and name.isidentifier() and not is_a(value, _BY_NAME):
            yield Place(ATTRIBUTE, module, "", name)
        if type(value) is types.FunctionType and value.__module__ == module:
            yield from _places_in(module, name, value)
        if _has_cached(value, module):
            yield Place(ATTRIBUTE, module, name, CACHED)
        if _is_defined(value, module, name):
            yield from _places_of_class(module, name, value)


def _places_of_class(module: str, path: str, cls: object) -> Iterator[Place]:
    """Yield the places in a class, in the classes defined in it, and in the members of an enumeration."""
    kind = type(cls)
    for key, held in list(_CLASS_DICT.__get__(cls).items()):
        inner = f"{path}.{key}"
        function = held.__func__ if kind_of(held) in _BOUND else held
        if type(function) is types.FunctionType and function.__module__ == module:
            yield from _places_in(module, inner, function)
        if _has_cached(function, module):
            yield Place(ATTRIBUTE, module, inner, CACHED)
        if _is_defined(held, module, inner):
            yield from _places_of_class(module, inner, held)
        elif type(held) is cls and issubclass(kind, EnumType):
            yield from (
                Place(ATTRIBUTE, module, inner, name)
                for name, value in list(attributes_of(held).items())
                if not _is_pythons(name) and name.isidentifier() and not is_a(value, _BY_NAME)
            )
        elif not _is_pythons(key) and key.isidentifier() and _may_change(kind, held):
            yield Place(ATTRIBUTE, module, path, key)


def _is_defined(value: object, module: str, name: str) -> bool:
    """Tell whether a value is a class that was defined in a module under a name."""
    if not issubclass(type(value), type):
        return False
    return bool(_CLASS_DICT.__get__(value).get("__module__") == module and _QUALNAME.__get__(value) == name)


def _is_pythons(name: str) -> bool:
    """Tell whether Python, ``enum`` or ``ctypes`` gives a class what it has under a name."""
    return name.startswith("_") and name.endswith("_")


def _may_change(kind: type, held: object) -> bool:
    """Tell whether calls may leave something in an attribute of a class.

    Where a metaclass made the class, what is neither plain nor the user's own is the metaclass's.
    """
    if kind is type:
        return not is_a(held, _OF_CLASSES)
    if kind_of(held) in _PLAIN_IN_CLASSES:
        return True
    home = _CLASS_DICT.__get__(type(held)).get("__module__")
    return not issubclass(kind, EnumType) and type(home) is str and (home == "__main__" or is_own(home))


def _has_cached(function: Any, module: str) -> bool:
    """Tell whether a module's own function has been called and caches what it returns."""
    return type(function) is WRAPPER and function.__module__ == module and function.cache_info().misses > 0


def _places_in(module: str, path: str, function: types.FunctionType) -> Iterator[Place]:
    """Yield the places where a function keeps what its calls may change."""
    for key in list(vars(function)):
        if not key.startswith("__") and key.isidentifier() and not is_a(vars(function)[key], _BY_NAME):
            yield Place(ATTRIBUTE, module, path, key)
    for key, held in ((DEFAULTS, function.__defaults__), (KEYWORD_DEFAULTS, function.__kwdefaults__)):
        values: Any = held.values() if is_a(held, dict) else held or ()
        if not all(kind_of(one) in PLAIN or is_a(one, _BY_NAME) for one in values):
            yield Place(ATTRIBUTE, module, path, key)
    if function.__closure__ and cells_of(function):
        yield Place(ATTRIBUTE, module, path, CELLS)
