"""Modules of the user's that are no longer what an import of their file gives: they travel by value.

A module strays when it was reloaded, when autoreload changed its functions, when the notebook took it out and
imported it again, when no import finds it, or when the text it was imported from is not known; with it stray
the user's modules that hold something of it.
Law: a stray stays one for as long as it lives; a look without any module of the user's costs one comparison.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
import weakref
from typing import Any

import msgspec

from replkernel.state.patches import imported_sources
from replkernel.state.patches.own_modules import codes_of, own_modules
from replkernel.state.python.kinds import is_a, module_of

_MODULE_DICT: Any = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_bootstrap: Any = importlib.import_module("importlib._bootstrap")


class Birth(msgspec.Struct):
    """How a module was when it was first seen after its import."""

    module: weakref.ref[types.ModuleType]
    spec: Any
    codes: dict[str, types.CodeType]


_births: dict[str, Birth] = {}
_strays: dict[int, weakref.ref[types.ModuleType]] = {}


def is_stray(module: types.ModuleType) -> bool:
    """Tell whether a module is one."""
    held = _strays.get(id(module)) if _strays else None
    return held is not None and held() is module


def is_loaded_by_notebook(module: object) -> bool:
    """Tell whether a loader of the notebook's own made a module: no other process could import it."""
    if type(module) is not types.ModuleType:
        return False
    return module_of(type(_MODULE_DICT.__get__(module).get("__loader__"))) == "__main__"


def enroll(module: types.ModuleType) -> None:
    """Note that a module is one."""
    key = id(module)

    def gone(dead: weakref.ref[types.ModuleType]) -> None:
        if _strays.get(key) is dead:
            del _strays[key]

    _strays[key] = weakref.ref(module, gone)


def registered() -> list[tuple[str, types.ModuleType]]:
    """Return the strays that imports find, by name."""
    found = [module for held in list(_strays.values()) if (module := held()) is not None]
    named = [(_MODULE_DICT.__get__(module).get("__name__"), module) for module in found]
    return sorted((name, module) for name, module in named if sys.modules.get(name) is module)


def taken_out() -> list[str]:
    """Return the names of the user's modules that the notebook took out of ``sys.modules``."""
    return [name for name in _births if name not in sys.modules]


def begin_anew(name: str) -> None:
    """Forget how a module was, which is imported again here for no other reason than a move."""
    _births.pop(name, None)


def look() -> None:
    """Find the modules that stray."""
    before = len(_strays)
    for name, module in own_modules():
        if not is_stray(module) and _strays_now(name, module):
            enroll(module)
    if _strays and (len(_strays) != before or _unseen()):
        _spread()


def _unseen() -> bool:
    return any(not is_stray(module) for _, module in own_modules())


def _strays_now(name: str, module: types.ModuleType) -> bool:
    attributes = _MODULE_DICT.__get__(module)
    spec = attributes.get("__spec__")
    birth = _births.get(name)
    if birth is None or birth.module() is not module:
        if getattr(spec, "_initializing", False):
            return False
        _births[name] = Birth(weakref.ref(module), spec, codes_of(module))
        is_found = imported_sources.is_loaded(name, module) or _is_found(name, attributes)
        return birth is not None or not is_found or not imported_sources.note(name, module)
    if birth.spec is not spec:
        return True
    return any(birth.codes.get(key) is not code for key, code in codes_of(module).items())


def _is_found(name: str, attributes: dict[str, Any]) -> bool:
    """Tell whether an import finds the very file of a module under its name."""
    parent = sys.modules.get(name.rpartition(".")[0])
    path = None if "." not in name else getattr(parent, "__path__", None)
    try:
        found = _bootstrap._find_spec(name, path)
        return os.path.samefile(found.origin, attributes["__file__"])
    except Exception:
        return False


def _spread() -> None:
    """Let those modules stray that hold something of a stray."""
    names = {name for name, _ in registered()}
    waiting = [(name, module) for name, module in own_modules() if not is_stray(module)]
    while waiting:
        caught = [(name, module) for name, module in waiting if _holds(module, names)]
        if not caught:
            return
        for name, module in caught:
            enroll(module)
            names.add(name)
        waiting = [(name, module) for name, module in waiting if not is_stray(module)]


def _holds(module: types.ModuleType, names: set[str]) -> bool:
    return any(_is_of(value, names) for value in list(_MODULE_DICT.__get__(module).values()))


def _is_of(value: Any, names: set[str]) -> bool:
    if is_a(value, types.ModuleType):
        return is_stray(value)
    if is_a(value, type):
        return module_of(value) in names
    if is_a(value, types.FunctionType):
        return value.__globals__.get("__name__") in names
    return module_of(type(value)) in names
