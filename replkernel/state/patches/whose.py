"""Whether a value that sits in a library is the notebook's: a library fills its own places by itself.

Law: nobody's code runs; in doubt a value is the library's, for one carried off in error breaks it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

from replkernel.state.patches.places import PLAIN
from replkernel.state.python.kinds import is_a, key_of, module_of
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


def is_foreign(value: Any, module: str) -> bool:
    """Tell whether a function or class was made by another package than that of `module`."""
    if is_a(value, types.FunctionType):
        home = value.__globals__.get("__name__")
    elif is_a(value, type):
        home = module_of(value)
    else:
        return False
    return type(home) is str and home.partition(".")[0] not in (module.partition(".")[0], "builtins")
