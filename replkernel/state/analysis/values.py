"""What the values that a cell names say of further names: words in short texts, and doors to the namespace.

Law: no attribute is read through a user's class, no user code runs; whatever is met is bounded.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterable
from typing import Any

from replkernel.state.analysis.mentions import LOOKERS, LOOKS_AT_NAMES, words_of
from replkernel.state.python.kinds import key_of, kind_of, module_of
from replkernel.state.python.paths import instance_dict

TEXT_CHARS_MAX = 64 * 1024
"""A longer text is data, and nothing that is evaluated."""

ITEMS_MAX = 1_000
DEPTH_MAX = 3

_ROWS = frozenset({list, tuple, set, frozenset})
_SIZED = _ROWS | {dict}
_PLAIN = frozenset({int, float, complex, bool, str, bytes, bytearray, range, type(None)})
_MRO = type.__dict__["__mro__"]
_DOORS = frozenset({id(getattr(builtins, name)) for name in LOOKS_AT_NAMES if hasattr(builtins, name)})


def words_in(values: Iterable[Any], shell: object) -> set[str] | None:
    """Return the words of the texts among `values`; None when one of them can look at every name."""
    words: set[str] = set()
    waiting = [(value, 0) for value in values]
    seen: set[int] = set()
    while waiting:
        value, depth = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = type(value)
        if kind is str:
            if len(value) <= TEXT_CHARS_MAX:
                words |= words_of(value)
        elif _is_door(value, kind, shell):
            return None
        elif depth < DEPTH_MAX:
            waiting.extend((part, depth + 1) for part in _parts(value, kind))
    return words


def holds_no_code(value: Any) -> bool:
    """Tell whether a value is plain data all through, as far as a short look can tell."""
    waiting = [value]
    seen = 0
    while waiting:
        value = waiting.pop()
        kind = kind_of(value)
        seen += 1
        if seen > ITEMS_MAX:
            return False
        if kind in _PLAIN:
            continue
        if kind in _SIZED:
            if len(value) > ITEMS_MAX:
                return False
            waiting.extend(_parts(value, kind))
        elif module_of(type(value)) != "numpy" or getattr(getattr(value, "dtype", None), "hasobject", True):
            return False
    return True


def _is_door(value: Any, kind: type, shell: object) -> bool:
    """Tell whether a value leads to all names: the shell, `sys` by another name, pickle's functions."""
    if value is shell or value is builtins or id(value) in _DOORS:
        return True
    if kind is types.ModuleType:
        return value is not sys and _is_looker(vars(value).get("__name__"))
    if kind is types.MethodType:
        return value.__self__ is shell
    if kind is types.FunctionType or kind is types.BuiltinFunctionType:
        return _is_looker(value.__module__)
    return any(base is type for base in _MRO.__get__(kind)) and _is_looker(module_of(value))


def _is_looker(module: object) -> bool:
    return type(module) is str and module != "__main__" and module.partition(".")[0] in LOOKERS


def _parts(value: Any, kind: type) -> list[Any]:
    if key_of(kind) in _ROWS:
        return [item for _, item in zip(range(ITEMS_MAX), value, strict=False)]
    if kind is dict:
        return [part for _, item in zip(range(ITEMS_MAX), list(value.items()), strict=False) for part in item]
    if kind is types.SimpleNamespace or module_of(kind) == "__main__":
        fields = vars(value) if kind is types.SimpleNamespace else instance_dict(value) or {}
        return list(fields.values())[:ITEMS_MAX]
    return []
