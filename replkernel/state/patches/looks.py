"""What an object of a library holds, by ids: looked at before a cell and after it, and compared; and whether
a value that sits in a library is the notebook's, for a library fills its own places by itself.

Law: no code of anybody's runs, and values that may be the user's are not kept. In doubt a value is the
library's, for one carried off in error breaks it.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Mapping
from typing import Any

from replkernel.state.patches.book import UNKNOWN
from replkernel.state.patches.places import (
    PLAIN,
    Absent,
    attributes_of,
    is_abstract,
    is_dispatcher,
    virtual_subclasses,
)
from replkernel.state.python.kinds import Odd, as_key, is_a, key_of, kind_of, module_of
from replkernel.state.python.paths import instance_dict

DEPTH_MAX = 3
NOTEBOOK = "__main__"
_HELD_MAX = 32


def is_notebooks(value: Any, namespace: Mapping[str, Any], depth: int = DEPTH_MAX) -> bool:
    """Tell whether the notebook made `value`, or something that it wraps."""
    kind = type(value)
    if kind is types.FunctionType:
        if value.__globals__ is namespace:
            return True
        held: list[Any] = _enclosed(value)
    elif is_a(value, type):
        return module_of(value) == NOTEBOOK
    elif is_a(value, types.ModuleType) or key_of(kind) in PLAIN:
        return False
    elif module_of(kind) == NOTEBOOK:
        return True
    else:
        held = _wrapped(value, kind)
    return depth > 0 and any(is_notebooks(item, namespace, depth - 1) for item in held)


def _enclosed(function: types.FunctionType) -> list[Any]:
    found: list[Any] = []
    for cell in (function.__closure__ or ())[:_HELD_MAX]:
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue
    return found


def _wrapped(value: Any, kind: type) -> list[Any]:
    if kind is types.MethodType:
        return [value.__func__, value.__self__]
    if kind is classmethod or kind is staticmethod:
        return [value.__func__]
    if kind is property:
        return [value.fget, value.fset, value.fdel]
    if kind is functools.partial:
        return [value.func, *value.args[:_HELD_MAX]]
    if kind is tuple:
        return list(value[:_HELD_MAX])
    attributes = instance_dict(value)
    return [] if attributes is None else [*attributes.values()][:_HELD_MAX]


DEBUGGERS = ("debugpy", "pydev", "_pydev")
"""How modules of debuggers begin: a page's may come in the midst of a cell, and what debugpy brings along is
found on its own path alone."""


def is_foreign(value: object, module: str) -> bool:
    """Tell whether another package than that of `module`, which is no debugger, made a function or class."""
    if is_a(value, types.FunctionType):
        home = value.__globals__.get("__name__")
    elif is_a(value, type):
        home = module_of(value)
    else:
        return False
    if type(home) is not str or home.startswith(DEBUGGERS):
        return False
    return home.partition(".")[0] not in (module.partition(".")[0], "builtins")


ENTRIES_MAX = 20_000
_HELD = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    property,
    classmethod,
    staticmethod,
    *PLAIN,
)
"""Values of these types are kept for the length of a cell, to be what a change is taken back to."""

_HOLD_ANYTHING = frozenset({NOTEBOOK, "functools", "operator", "weakref"})
"""Modules of callables that may hold what is the user's."""

_DICT, _MRO = type.__dict__["__dict__"], type.__dict__["__mro__"]

Look = dict[Any, tuple[int, Any]]
"""Keys with the ids of their values, and the values that are kept."""


def look_at(value: Any) -> Look:
    """Return what an object holds, by ids; values that may be the user's are not kept."""
    if issubclass(type(value), dict):
        return {as_key(key): _seen(item) for key, item in list(dict.items(value))[:ENTRIES_MAX]}
    if kind_of(value) in (list, set):
        return {number: _seen(item) for number, item in enumerate(list(value)[:ENTRIES_MAX])}
    if is_dispatcher(value):
        return {as_key(key): _seen(item) for key, item in value.registry.items()}
    found: Look = {key: _seen(item) for key, item in list(attributes_of(value).items())}
    if is_abstract(value):
        found.update((as_key(cls), (id(cls), Absent)) for cls in virtual_subclasses(value))
    return found


def _seen(value: object) -> tuple[int, Any]:
    kept = kind_of(value) in _HELD or is_a(value, type) or _is_compiled_function(value)
    return id(value), value if kept else UNKNOWN


def _is_compiled_function(value: object) -> bool:
    """Tell whether a value is a library's function in another language than Python, as numpy's are."""
    kind = kind_of(value)
    if kind is Odd or module_of(kind) in _HOLD_ANYTHING:
        return False
    if kind is types.MethodType:
        return not is_notebooks(value, {})
    found = (held["__call__"] for held in map(_DICT.__get__, _MRO.__get__(kind)) if "__call__" in held)
    return type(next(found, None)) is types.WrapperDescriptorType


def is_imported(name: Any) -> bool:
    """Tell whether a module is where the import system put it, or is gone altogether."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None) if isinstance(module, types.ModuleType) else None
    return module is None or getattr(spec, "name", None) == name
