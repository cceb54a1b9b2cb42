"""What an object is called, its instance dictionary, and which mutable objects a stuck one holds.

Law: bounded walks; no user code runs.
"""

from __future__ import annotations

import gc
import types
from typing import Any

from replkernel.state.python.class_registry import module_of, qualname_of
from replkernel.state.python.instance_dicts import getter_among
from replkernel.state.python.kinds import is_a

HELD_MAX = 2_000
HELD_DEPTH_MAX = 4

_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def type_name(value: object) -> str:
    """Return the name of the value's type as a user knows it."""
    return name_of(type(value))


def name_of(cls: type) -> str:
    """Return the name of a type as a user knows it."""
    module = module_of(cls)
    return qualname_of(cls) if module in ("builtins", "__main__") else f"{module}.{qualname_of(cls)}"


def weak(value: object) -> bool:
    """Tell whether objects like `value` can be referred to weakly."""
    return bool(type.__dict__["__weakrefoffset__"].__get__(type(value)))


def instance_dict(value: object) -> dict[str, Any] | None:
    """Return the instance dictionary of `value` without asking its class; None when it has or tells none.

    A proxy, as of wrapt, gives that of what it stands for, which may have none.
    """
    getter = getter_among(type.__dict__["__mro__"].__get__(type(value)))
    if getter is None:
        return None
    try:
        found = getter.__get__(value)
    except Exception:
        return None
    return found if type(found) is dict else None


def held_by(value: object, namespace: dict[str, Any]) -> list[Any]:
    """Return objects that a stuck object refers to: whatever shares them belongs to its component."""
    found: list[Any] = []
    level = [value]
    seen = {id(value), id(namespace)}
    for _ in range(HELD_DEPTH_MAX):
        following: list[Any] = []
        for item in level:
            for held in gc.get_referents(item):
                if id(held) in seen or is_a(held, _OPAQUE) or len(found) >= HELD_MAX:
                    continue
                seen.add(id(held))
                if type(held) is dict and "__builtins__" in held:
                    continue
                if gc.is_tracked(held) or type(held) is bytearray:
                    found.append(held)
                    following.append(held)
        level = following
    return found
