"""Where an object sits below the variables, what it is called, and which mutable objects a stuck one holds.

Law: bounded walks over builtin containers and instance dictionaries; no user code runs.
"""

from __future__ import annotations

import gc
import types
from collections import deque
from typing import Any

from replkernel.namespace.class_registry import module_of, qualname_of

VISITED_MAX = 20_000
HELD_MAX = 2_000
HELD_DEPTH_MAX = 4

_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)
_MEMBER = type.__dict__["__dict__"]


def type_name(value: object) -> str:
    """Return the name of the value's type as a user knows it."""
    cls = type(value)
    module = module_of(cls)
    return qualname_of(cls) if module in ("builtins", "__main__") else f"{module}.{qualname_of(cls)}"


def weak(value: object) -> bool:
    """Tell whether objects like `value` can be referred to weakly."""
    return bool(type.__dict__["__weakrefoffset__"].__get__(type(value)))


def instance_dict(value: object) -> dict[str, Any] | None:
    """Return the instance dictionary of `value` without asking its class; None when it has or tells none.

    A proxy, as of wrapt, gives that of what it stands for, which may have none.
    """
    for cls in type.__dict__["__mro__"].__get__(type(value)):
        getter = _MEMBER.__get__(cls).get("__dict__")
        if isinstance(getter, types.GetSetDescriptorType):
            try:
                found = getter.__get__(value)
            except Exception:
                return None
            return found if type(found) is dict else None
    return None


def _children(value: Any) -> list[tuple[str, Any]]:
    kind = type(value)
    if kind is dict or issubclass(kind, dict):
        return [(f"[{key!r}]" if type(key) in (str, int) else "[…]", item) for key, item in dict.items(value)]
    if kind in (list, tuple):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if kind in (set, frozenset, deque):
        return [("{…}", item) for item in value]
    if issubclass(kind, _OPAQUE):
        return []
    attributes = instance_dict(value)
    found = [] if attributes is None else [(f".{key}", item) for key, item in attributes.items()]
    if issubclass(kind, types.MethodType):
        found.append((".__self__", value.__self__))
    return found


def locate(roots: dict[str, Any], wanted: object) -> tuple[str, str]:
    """Return the variable that reaches `wanted`, and the path when it lies deeper; else the first root.

    A root that is a class is looked into: it stands for its definition.
    """
    queue: deque[tuple[str, str, Any]] = deque((name, "", value) for name, value in roots.items())
    for name, value in roots.items():
        if issubclass(type(value), type):
            queue.extend((name, f".{key}", item) for key, item in _MEMBER.__get__(value).items())
    seen: set[int] = set()
    while queue and len(seen) < VISITED_MAX:
        name, path, value = queue.popleft()
        if value is wanted:
            return name, f"{name}{path}" if path else ""
        if id(value) in seen:
            continue
        seen.add(id(value))
        try:
            children = _children(value)
        except RuntimeError:
            continue
        room = VISITED_MAX - len(queue)
        queue.extend((name, path + step, item) for step, item in children[: max(room, 0)])
    return next(iter(roots), ""), ""


def held_by(value: object, namespace: dict[str, Any]) -> list[Any]:
    """Return objects that a stuck object refers to: whatever shares them belongs to its component."""
    found: list[Any] = []
    level = [value]
    seen = {id(value), id(namespace)}
    for _ in range(HELD_DEPTH_MAX):
        following: list[Any] = []
        for item in level:
            for held in gc.get_referents(item):
                if id(held) in seen or isinstance(held, _OPAQUE) or len(found) >= HELD_MAX:
                    continue
                seen.add(id(held))
                if type(held) is dict and "__builtins__" in held:
                    continue
                if gc.is_tracked(held) or type(held) is bytearray:
                    found.append(held)
                    following.append(held)
        level = following
    return found
