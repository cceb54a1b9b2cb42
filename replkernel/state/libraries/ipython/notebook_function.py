"""Functions that a notebook handed to IPython: whose they are, which variable holds them.

Law: no attribute of a user's object is read through its own class; a function travels by its variable's name.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, cast

from replkernel.state.patches.own_modules import is_own

NOTEBOOK_MODULE = "__main__"
_class_vars = vars(type)["__dict__"].__get__


def is_notebooks(value: object, namespace: Mapping[str, Any]) -> bool:
    """Tell whether a callable was defined in the notebook: a function, a bound method, or an instance."""
    kind, held = type(value), cast("Any", value)
    if kind is types.MethodType:
        return is_notebooks(held.__func__, namespace) or is_notebooks(held.__self__, namespace)
    if kind is types.FunctionType:
        return held.__globals__ is namespace
    module = _class_vars(kind).get("__module__")
    return type(module) is str and module == NOTEBOOK_MODULE


def is_users(value: object, namespace: Mapping[str, Any]) -> bool:
    """Tell whether a callable was defined in the notebook, or in a module of the user's."""
    return is_notebooks(value, namespace) or _is_of_own_module(value)


def _is_of_own_module(value: object) -> bool:
    kind, held = type(value), cast("Any", value)
    if kind is types.MethodType:
        return _is_of_own_module(held.__func__) or _is_of_own_module(held.__self__)
    module = held.__module__ if kind is types.FunctionType else _class_vars(kind).get("__module__")
    return type(module) is str and is_own(module)


def variable_of(value: object, namespace: Mapping[str, Any]) -> str | None:
    """Return the first variable that holds this very object; IPython's output history does not count."""
    for name, held in list(namespace.items()):
        if held is value and not name.startswith("_"):
            return name
    return None
