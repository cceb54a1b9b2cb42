"""Functions and their cells. A function of the notebook travels by value, with the live namespace as globals.

Two closures over one cell keep sharing it: the cell is a node of its own.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from replkernel.loaders import is_loader, loader
from replkernel.state.analysis.mentions import LOOKS_AT_NAMES
from replkernel.state.capture.sentinels import method_of_module
from replkernel.state.patches.book import book, original
from replkernel.state.python.kinds import is_a, kind_of, module_of
from replkernel.state.python.methods import mangled
from replkernel.state.python.modules import (
    MadeModuleDict,
    ModuleDict,
    find_global,
    importable,
    module_of_dict,
)
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


OWN_PACKAGE = __package__
"""Callables of payloads are here, and those of libraries are loaders; they are asked about most often."""


ATTRS_FILE = "<attrs generated"
"""How the file names of code begin that attrs has made."""


def is_library_function(function: types.FunctionType, main_name: str) -> bool:
    """Tell whether importing finds this very function."""
    module = function.__module__
    if module == main_name or module is None or "<locals>" in function.__qualname__:
        return False
    if book and book.is_patched(module, function.__qualname__):
        return False
    return find_global(module, function.__qualname__) is function


def _wrapped_in_library(function: types.FunctionType) -> bool:
    """Tell whether a library's class has this very function as a class or static method."""
    module, qualname = function.__module__, function.__qualname__
    if module is None or "." not in qualname or "<locals>" in qualname or module == "__main__":
        return False
    found = find_global(module, qualname)
    return kind_of(found) in (classmethod, staticmethod) and found.__func__ is function


@loader("functions:wrapped_function")
def wrapped_function(module: str, qualname: str) -> Any:
    """Return the function of a library's class or static method (called by payloads)."""
    importlib.import_module(module)
    return find_global(module, qualname).__func__


def reduce_function(pickler: UnitContext, function: types.FunctionType) -> object:
    """Reduce a function: by name when a library's import finds it, else by value."""
    if function.__globals__.get("__package__") == OWN_PACKAGE or is_loader(function):
        return NotImplemented
    if (root := book.token_of(function)) is not None:
        return original, (root,)
    if is_library_function(function, pickler.world.seeds.main_name):
        pickler.module_needed(function.__module__)
        return NotImplemented
    if _wrapped_in_library(function):
        pickler.module_needed(function.__module__)
        return wrapped_function, (function.__module__, function.__qualname__)
    pickler.codes.append(function.__code__)
    args = (
        function.__code__,
        _globals_for(pickler, function),
        function.__name__,
        function.__closure__,
        *entry_of(pickler, function),
    )
    state: tuple[Any, ...] = (
        function.__defaults__,
        function.__kwdefaults__,
        function.__annotations__ or None,
        function.__qualname__,
        function.__module__,
        function.__doc__,
        function.__dict__,
    )
    if types_of := _types_of(function):
        state = *state, types_of
    return make_function, args, state, None, None, fill_function


def _types_of(function: types.FunctionType) -> tuple[Any, ...]:
    """Return the type variables in a function's head, which are from Python 3.12 on; not an attribute's."""
    return getattr(function, "__type_params__", ()) if sys.version_info >= (3, 12) else ()


def _globals_for(pickler: UnitContext, function: types.FunctionType) -> object:
    """Return a function's globals; of the copy of all variables that attrs makes, what the method uses."""
    code, scope = function.__code__, function.__globals__
    if scope is pickler.namespace or not code.co_filename.startswith(ATTRS_FILE):
        return _globals_of(pickler, scope)
    used = {"__name__", *code.co_names}
    for constant in code.co_consts:
        used.update(constant.co_names if isinstance(constant, types.CodeType) else ())
    kept = {name: scope[name] for name in sorted(used) if name in scope}
    pickler.notes.kept.append(kept)
    return kept


def _globals_of(pickler: UnitContext, scope: dict[str, Any]) -> object:
    if scope is pickler.namespace:
        return scope
    name = scope.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    known = pickler.notes.module_dicts
    if id(scope) in known:
        return known[id(scope)]
    stand_in: object = scope
    if module is not None and vars(module) is scope and importable(module) is not None:
        stand_in = ModuleDict(str(name))
    elif (made := module_of_dict(scope)) is not None:
        stand_in = MadeModuleDict(made)
    pickler.touched = True
    known[id(scope)] = stand_in
    return stand_in


@loader("functions:make_function")
def make_function(
    code: types.CodeType,
    scope: dict[str, Any],
    name: str,
    closure: tuple[types.CellType, ...] | None,
    entry: Entry | None = None,
) -> types.FunctionType:
    """Return a function with its cells and no more: that of a class that is here (called by payloads)."""
    known = None if entry is None else present(entry, scope)
    if known is not None and renew(known, code, name, closure):
        return known
    return types.FunctionType(code, scope, name, None, closure)


@loader("functions:fill_function")
def fill_function(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    """Give a function what it has beside its code (called by payloads)."""
    defaults, kwdefaults, annotations, qualname, module, doc, attributes, *types_of = state
    function.__defaults__ = defaults
    function.__kwdefaults__ = kwdefaults
    function.__annotations__ = annotations or {}
    function.__qualname__ = qualname
    function.__module__ = module
    function.__doc__ = doc
    function.__dict__ = attributes
    if types_of or _types_of(function):
        function.__type_params__ = types_of[0] if types_of else ()  # type: ignore[attr-defined]


def reduce_cell(pickler: UnitContext, cell: types.CellType) -> object:
    """Reduce a closure's cell; what it holds is its state, so that it may lead back to its function."""
    try:
        contents = cell.cell_contents
    except ValueError:
        return make_cell, ()
    return make_cell, (), (contents,), None, None, fill_cell


@loader("functions:make_cell")
def make_cell() -> types.CellType:
    """Return an empty cell (called by payloads)."""
    return types.CellType()


@loader("functions:fill_cell")
def fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    """Put a cell's contents in (called by payloads)."""
    cell.cell_contents = state[0]


def reduce_builtin(pickler: UnitContext, function: types.BuiltinFunctionType) -> object:
    """Note the module of a builtin function, and leave it to pickle; bound ones travel with their object.

    One that a module has for a function of its own travels by that name.
    """
    if (root := book.token_of(function)) is not None:
        return original, (root,)
    owner = function.__self__
    if owner is None or is_a(owner, types.ModuleType):
        if function.__module__ is not None:
            pickler.module_needed(function.__module__)
        if function.__name__ in LOOKS_AT_NAMES:
            pickler.codes.append(None)
    elif is_a(owner, type):
        pickler.module_needed(module_of(owner))
    else:
        return method_of_module(pickler, function) or NotImplemented
    return NotImplemented


EXACT = {
    types.FunctionType: reduce_function,
    types.CellType: reduce_cell,
    types.BuiltinFunctionType: reduce_builtin,
}


# Functions of a notebook's classes stay the objects that they are when their class arrives once more.
#
# Bound methods elsewhere refer to them by class and name, and are not told again when something else of the
# class changes: they would no longer be equal to the class's own, nor found by their hash.
# Law: whoever else holds such a function is in the same component, and rebuilt with it.

Entry = tuple[str, tuple[str, ...]]
"""The name under which classes have a function, which is its own, and the ids of these classes."""

_DICT = type.__dict__["__dict__"]
_CLOSURE_AT = 72
_WORD_BYTES = 8


def entry_of(pickler: UnitContext, function: types.FunctionType) -> tuple[Entry, ...]:
    """Return where a class of this unit has a function, as an argument of `make_function`."""
    if not pickler.own_classes:
        return ()
    entries = pickler.notes.entries
    if entries is None:
        entries = pickler.notes.entries = _entries(pickler)
    found = entries.get(id(function))
    return () if found is None else (found,)


def _entries(pickler: UnitContext) -> dict[int, Entry]:
    """Return where the classes of a unit have functions; texts are those that the unit has already."""
    found: dict[int, Entry] = {}
    for id_ in sorted(pickler.own_classes):
        cls = pickler.world.classes.find(id_)
        if cls is None:
            continue
        class_id = pickler.world.class_id(cls)
        for name, value in _DICT.__get__(cls).items():
            function = _function(value)
            if function is None or name not in (own := function.__name__, mangled(function, own)):
                continue
            _, class_ids = found.get(id(function), (own, ()))
            found[id(function)] = own if name == own else name, (*class_ids, class_id)
    return found


def _function(value: Any) -> types.FunctionType | None:
    if kind_of(value) in (classmethod, staticmethod):
        value = value.__func__
    return value if type(value) is types.FunctionType else None


def present(entry: Entry, scope: dict[str, Any]) -> types.FunctionType | None:
    """Return the function that a class of this process has there, if it is one of the same globals."""
    name, class_ids = entry
    for class_id in class_ids:
        cls = loading.current().classes.find(class_id)
        function = None if cls is None else _function(_DICT.__get__(cls).get(name))
        if function is not None and function.__globals__ is scope:
            return function
    return None


def renew(function: types.FunctionType, code: types.CodeType, name: str, closure: object) -> bool:
    """Give a function that is here its code and cells; False when that cannot be done."""
    if function.__closure__ is not closure:
        if not _readable():
            return False
        _exchange(function, closure)
    function.__code__ = code
    function.__name__ = name
    return True


def _word(function: object) -> Any:
    return ctypes.c_size_t.from_address(id(function) + _CLOSURE_AT)


@functools.cache
def _readable() -> bool:
    """Tell whether functions lie in memory as is known here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _WORD_BYTES:
        return False

    def sample() -> Any:
        return _word

    def inner() -> Any:
        return sample

    return bool(_word(inner).value == id(inner.__closure__) and not _word(_word).value)


def _exchange(function: types.FunctionType, closure: object) -> None:
    """Have a function refer to other cells, or to none."""
    before = _word(function).value
    if closure is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(closure))
    _word(function).value = 0 if closure is None else id(closure)
    if before:
        ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(before))
