"""Puts tombstones in the place of the smallest objects that were rebuilt wrongly; what is beside them stays.

Law: bounded walks over builtin containers, attributes and closures; no user code runs.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from replkernel.state.capture.whereabouts import children, slots, step_into, steps_of
from replkernel.state.python.class_registry import module_of
from replkernel.state.python.kinds import is_a
from replkernel.state.python.paths import instance_dict

VISITED_MAX = 20_000


def smallest(roots: Mapping[str, Any], path: str) -> Any:
    """Return the smallest object that `path` leads into whose class is no builtin; raise LookupError.

    Containers are as true as what is in them.
    """
    name = next((root for root in sorted(roots, key=len, reverse=True) if _begins(path, root)), None)
    if name is None:
        raise LookupError(path)
    values = [roots[name]]
    for step in steps_of(path.removeprefix(name)):
        try:
            values.append(step_into(values[-1], step))
        except LookupError:
            break
    found = [value for value in values if not _is_builtin(value)]
    if not found:
        raise LookupError(path)
    return found[-1]


def _begins(path: str, root: str) -> bool:
    return path.startswith(root) and path[len(root) : len(root) + 1] in ("", ".", "[", "{", " ")


def _is_builtin(value: Any) -> bool:
    return module_of(type(value)) == "builtins" or is_a(value, type)


def put(namespace: dict[str, Any], names: list[str], stand_ins: Mapping[int, Any]) -> None:
    """Put what `stand_ins` has for an id in the place of the object that has it, below `names`.

    What holds its members for good (tuples, sets, a library's objects) keeps them.
    """
    for name in names:
        if id(namespace[name]) in stand_ins:
            namespace[name] = stand_ins[id(namespace[name])]
    queue = deque(namespace[name] for name in names)
    seen: dict[int, Any] = {}
    while queue and len(seen) < VISITED_MAX:
        value = queue.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        for setter, item in _places(value):
            if id(item) in stand_ins:
                setter(stand_ins[id(item)])
        queue.extend(item for _, item in children(value)[: VISITED_MAX - len(queue)])


def _places(value: Any) -> list[tuple[Callable[[Any], None], Any]]:
    """Return what `value` holds in places that can be filled anew, each with what fills it."""
    kind = type(value)
    if kind is list or kind is deque:
        return [(partial(kind.__setitem__, value, index), item) for index, item in enumerate(value)]
    if issubclass(kind, dict):
        return [(partial(dict.__setitem__, value, key), item) for key, item in dict.items(value)]
    found: list[tuple[Callable[[Any], None], Any]] = []
    if kind is types.FunctionType:
        for cell in value.__closure__ or ():
            with suppress(ValueError):
                found.append((partial(setattr, cell, "cell_contents"), cell.cell_contents))
    if issubclass(kind, (type, types.ModuleType)):
        return found
    attributes = instance_dict(value) or {}
    found += [(partial(dict.__setitem__, attributes, key), item) for key, item in attributes.items()]
    for _, member in slots(kind):
        with suppress(AttributeError):
            found.append((partial(member.__set__, value), member.__get__(value)))
    return found
