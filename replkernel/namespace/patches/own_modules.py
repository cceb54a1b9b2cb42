"""Modules that the user wrote: found by where their file is; their variables travel as places of the book.

A function or class of such a module is the same after an import elsewhere; its data is not.
Law: nobody's code runs; a look at a process without such modules costs one comparison.
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from itertools import islice
from typing import Any

from replkernel.namespace.patches.book import UNKNOWN, Book
from replkernel.namespace.patches.places import ATTRIBUTE, Absent, Place

NOT_THE_USERS = ("replkernel", "replkernel_scheduler", "replkernel_server", "__main__", "__mp_main__")
LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
"""What ``sys`` keeps of the last error that nobody caught."""

NEWEST = 8
_MODULE_DICT: Any = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_CLASS_DICT = type.__dict__["__dict__"]
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_OF_CLASSES = (
    *_BY_NAME,
    classmethod,
    staticmethod,
    property,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)


def _library_directories() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.update([*site.getsitepackages(), site.getusersitepackages(), sys.prefix, sys.base_prefix])
    return tuple(os.path.realpath(path) + os.sep for path in found)


_libraries = _library_directories()
_stamp: tuple[Any, ...] = ()
_names: tuple[str, ...] = ()


def own_modules() -> list[tuple[str, types.ModuleType]]:
    """Return the imported modules that the user wrote, by name."""
    global _stamp, _names
    stamp = (len(sys.modules), *islice(reversed(sys.modules), NEWEST))
    if stamp != _stamp:
        _stamp, _names = stamp, tuple(name for name in list(sys.modules) if is_own(name))
    return [
        (name, module) for name in _names if isinstance(module := sys.modules.get(name), types.ModuleType)
    ]


def is_own(name: str) -> bool:
    """Tell whether a module was made from a file of the user's, outside all libraries."""
    if name.partition(".")[0] in NOT_THE_USERS:
        return False
    module = sys.modules.get(name)
    if type(module) is not types.ModuleType:
        return False
    attributes = _MODULE_DICT.__get__(module)
    file, spec = attributes.get("__file__"), attributes.get("__spec__")
    if (
        type(file) is not str
        or not file.endswith(".py")
        or spec is None
        or attributes.get("__name__") != name
    ):
        return False
    return not os.path.realpath(file).startswith(_libraries)


def enter_places(book: Book) -> None:
    """Enter the variables of the user's modules in the book, and what is kept of the last error."""
    for name in LAST_ERROR:
        if name in vars(sys):
            book.enter(Place(ATTRIBUTE, "sys", "", name), Absent)
    for module_name, module in own_modules():
        for place in _places_of(module_name, _MODULE_DICT.__get__(module)):
            book.enter(place, UNKNOWN)


def _places_of(module: str, attributes: dict[str, Any]) -> Iterator[Place]:
    for name, value in list(attributes.items()):
        if not name.startswith("__") and name.isidentifier() and not isinstance(value, _BY_NAME):
            yield Place(ATTRIBUTE, module, "", name)
        if type(value) is type and value.__module__ == module and value.__qualname__ == name:
            for key, held in list(_CLASS_DICT.__get__(value).items()):
                if not key.startswith("_") and key.isidentifier() and not isinstance(held, _OF_CLASSES):
                    yield Place(ATTRIBUTE, module, name, key)


def code_digest(module: types.ModuleType) -> str:
    """Return a digest of the code of a module's functions and classes, as they are in this process."""
    digest = hashlib.blake2b(digest_size=16)
    name = _MODULE_DICT.__get__(module).get("__name__")
    for key, value in sorted(_MODULE_DICT.__get__(module).items(), key=lambda item: str(item[0])):
        if type(value) is type and _CLASS_DICT.__get__(value).get("__module__") == name:
            for method, held in sorted(_CLASS_DICT.__get__(value).items()):
                _digest_function(digest, f"{key}.{method}", getattr(held, "__func__", held), name)
        else:
            _digest_function(digest, key, value, name)
    return digest.hexdigest()


def _digest_function(digest: Any, name: str, value: object, module: object) -> None:
    if isinstance(value, types.FunctionType) and value.__module__ == module:
        code = value.__code__
        digest.update(f"{name}\0{code.co_firstlineno}\0{code.co_names}\0{code.co_varnames}\0".encode())
        digest.update(code.co_code)
        digest.update(
            repr([c for c in code.co_consts if not isinstance(c, (types.CodeType, frozenset))]).encode()
        )
