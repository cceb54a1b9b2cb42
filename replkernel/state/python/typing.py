"""Type variables of the notebook's own generic classes: compared by identity, so they are nodes.

And such a class with types for its variables: asked of `typing`, past a ``__class_getitem__`` of the class.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.kinds import derives, module_of
from replkernel.state.python.modules import find_global
from replkernel.state.python.paths import hidden_dict, instance_dict

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def _is_library(pickler: UnitContext, variable: typing.TypeVar | typing.ParamSpec) -> bool:
    module = getattr(variable, "__module__", None)
    return module != pickler.world.seeds.main_name and find_global(module, variable.__name__) is variable


def notes_on(kind: object) -> tuple[Any, ...]:
    """Return what cells have set on a type variable or a `NewType`, as the rest of a reduce tuple."""
    # From Python 3.12 on, type variables are written in C, and do not show their dictionary.
    held = instance_dict(kind) or hidden_dict(kind) or {}
    notes = {name: value for name, value in held.items() if name[:2] != "__"}
    return (notes, None, None, take_notes) if notes else ()


@loader("typing:take_notes")
def take_notes(kind: object, notes: dict[str, Any]) -> None:
    """Set what was set (called by payloads)."""
    for name, value in notes.items():
        setattr(kind, name, value)


def reduce_typevar(pickler: UnitContext, variable: typing.TypeVar) -> object:
    """Reduce a TypeVar."""
    if _is_library(pickler, variable):
        return NotImplemented
    options = (variable.__bound__, variable.__covariant__, variable.__contravariant__)
    made = variable.__name__, variable.__constraints__, *options, variable.__module__
    newer = _newer_options(variable)
    return make_typevar, (*made, newer) if newer else made, *notes_on(variable)


def _newer_options(variable: Any) -> dict[str, Any]:
    """Return what releases of Python behind 3.11 know of a type variable, where something was said."""
    options: dict[str, Any] = {}
    if sys.version_info >= (3, 12) and getattr(variable, "__infer_variance__", False):
        options["infer_variance"] = True
    if sys.version_info >= (3, 13) and variable.has_default():
        options["default"] = variable.__default__
    return options


@loader("typing:make_typevar")
def make_typevar(
    name: str,
    constraints: Iterable[Any],
    bound: object,
    covariant: bool,
    contravariant: bool,
    module: str,
    newer: Mapping[str, Any] = MappingProxyType({}),
) -> object:
    """Return a TypeVar (called by payloads)."""
    new = typing.TypeVar
    made = new(name, *constraints, bound=bound, covariant=covariant, contravariant=contravariant, **newer)
    made.__module__ = module
    return made


_UNBOUND = typing.ParamSpec("_UNBOUND").__bound__
"""What one says that has no bound: None, from Python 3.12 on None's type."""


def reduce_paramspec(pickler: UnitContext, variable: typing.ParamSpec) -> object:
    """Reduce a ParamSpec or a TypeVarTuple."""
    if _is_library(pickler, variable):
        return NotImplemented
    made = type(variable), variable.__name__, variable.__module__
    said = ("bound", "covariant", "contravariant") if type(variable) is typing.ParamSpec else ()
    held = ((name, getattr(variable, f"__{name}__")) for name in said)
    options = {name: value for name, value in held if value and value is not _UNBOUND}
    options |= _newer_options(variable)
    return make_paramspec, (*made, options) if options else made, *notes_on(variable)


@loader("typing:make_paramspec")
def make_paramspec(
    cls: type[Any], name: str, module: str, options: Mapping[str, Any] = MappingProxyType({})
) -> object:
    """Return a ParamSpec or a TypeVarTuple (called by payloads)."""
    made = cls(name, **options)
    made.__module__ = module
    return made


def reduce_alias(pickler: UnitContext, alias: Any) -> object:
    """Reduce what a generic class of the notebook gives for types."""
    _, arguments = alias.__reduce__()
    origin = arguments[0]
    if alias.__origin__ is not origin or not isinstance(origin, type):
        return NotImplemented
    if module_of(origin) != pickler.world.seeds.main_name or not derives(origin, typing.Generic):
        return NotImplemented
    return make_alias, arguments


@loader("typing:make_alias")
def make_alias(origin: object, types: object) -> object:
    """Return what `typing` gives for a class and types (called by payloads)."""
    return vars(typing.Generic)["__class_getitem__"].__get__(None, origin)(types)


EXACT: dict[type, Any] = {
    type(typing.Generic[typing.TypeVar("T")]): reduce_alias,  # type: ignore[index]
    typing.TypeVar: reduce_typevar,
    typing.ParamSpec: reduce_paramspec,
    typing.TypeVarTuple: reduce_paramspec,
}
