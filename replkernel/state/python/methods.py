"""Bound methods and what wraps functions inside classes: property, classmethod, staticmethod, descriptors."""

from __future__ import annotations

import ast
import re
import types
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.capture.sentinels import method_of_module
from replkernel.state.python.kinds import is_a

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_NOBODY = object()
_NAMED = re.compile(r"property ('.*'|\".*\") of 'object' object has no ", re.DOTALL)


def _entry(owner: type, name: str) -> Any:
    for cls in _MRO.__get__(owner):
        attributes = _DICT.__get__(cls)
        if name in attributes:
            return attributes[name]
    return None


def reduce_method(pickler: UnitContext, method: types.MethodType) -> object:
    """Reduce a bound method: by the name under which its class has the function, else with the function."""
    function: Any = method.__func__
    owner: object = method.__self__
    if (named := method_of_module(pickler, method)) is not None:
        return named
    name = getattr(function, "__name__", None) if is_a(function, types.FunctionType) else None
    if type(name) is str:
        for private in (name, mangled(function, name)):
            if _entry(type(owner), private) is function and _elsewhere(pickler, type(owner)):
                if any(owner is own for _, own in pickler.world.seeds.singletons()):
                    return bind_own, (owner, private)
                return bind, (owner, type(owner), private)
            if is_a(owner, type):
                entry = _entry(owner, private)
                if is_a(entry, classmethod) and entry.__func__ is function and _elsewhere(pickler, owner):
                    return bind_class, (owner, private)
    return types.MethodType, (function, owner)


def mangled(function: types.FunctionType, name: str) -> str:
    """Return the name under which a class has a function of that name."""
    if not name.startswith("__") or name.endswith("__"):
        return name
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2].lstrip("_")
    return f"_{owner}{name}"


def _elsewhere(pickler: UnitContext, cls: type) -> bool:
    """Tell whether a class will be whole when the method is rebuilt: it is not defined in this very unit."""
    return not any(pickler.world.classes.id_of(base) in pickler.own_classes for base in _MRO.__get__(cls))


@loader("methods:bind")
def bind(owner: object, cls: type, name: str) -> object:
    """Return a class's function bound to an instance (called by payloads)."""
    return types.MethodType(_entry(cls, name), owner)


@loader("methods:bind_own")
def bind_own(owner: object, name: str) -> Any:
    """Return the function of an instance's own class bound to it (called by payloads)."""
    return types.MethodType(_entry(type(owner), name), owner)


@loader("methods:bind_class")
def bind_class(owner: type, name: str) -> Any:
    """Return a classmethod bound to a class (called by payloads)."""
    return types.MethodType(_entry(owner, name).__func__, owner)


def reduce_wrapper(pickler: UnitContext, wrapper: Any) -> object:
    """Reduce a classmethod or staticmethod."""
    return make_wrapper, (type(wrapper), wrapper.__func__), dict(wrapper.__dict__), None, None, fill_wrapper


@loader("methods:make_wrapper")
def make_wrapper(cls: type[Any], function: object) -> object:
    """Return a classmethod or staticmethod (called by payloads)."""
    return type.__call__(cls, function)  # A metaclass may have its own way of calling a class.


@loader("methods:fill_wrapper")
def fill_wrapper(wrapper: Any, state: dict[str, Any]) -> None:
    """Give a wrapper its attributes, and none that its making gave it (called by payloads)."""
    attributes = vars(wrapper)
    attributes.clear()
    attributes.update(state)


def reduce_property(pickler: UnitContext, wrapper: property) -> object:
    """Reduce a property; a subclass's attributes are its state."""
    state = dict(vars(wrapper)) if type(wrapper) is not property else None
    kind: Any = property
    parts = kind.fget.__get__(wrapper), kind.fset.__get__(wrapper), kind.fdel.__get__(wrapper)
    named = _name_in_errors(wrapper, parts)
    made = type(wrapper), *parts, wrapper.__doc__, *(() if named is None else (named,))
    return make_property, made, state, None, None, fill_wrapper


def _name_in_errors(wrapper: property, parts: tuple[Any, ...]) -> str | None:
    """Return the name by which a property speaks of itself when it lacks a function.

    A class gave it that name, and nothing else tells it; one that lacks nothing never says it.
    """
    kind: Any = property
    asks = kind.__get__, lambda wrapper, owner: kind.__set__(wrapper, owner, None), kind.__delete__
    for part, ask in zip(parts, asks, strict=True):
        if part is None:
            try:
                ask(wrapper, _NOBODY)
            except AttributeError as error:
                said = _NAMED.match(str(error))
                return None if said is None else str(ast.literal_eval(said[1]))
    return None


def reduce_super(pickler: UnitContext, bound: super) -> object:
    """Reduce what ``super()`` returned; its own attributes are asked past the classes' that it stands for."""
    owner = _DICT.__get__(super)
    cls, instance = (owner[name].__get__(bound) for name in ("__thisclass__", "__self__"))
    return super, (cls,) if instance is None else (cls, instance)


@loader("methods:make_property")
def make_property(
    cls: Any, fget: Any, fset: object, fdel: object, doc: str | None, name: str | None = None
) -> object:
    """Return a property (called by payloads)."""
    kind: type[Any] = property
    made = cls.__new__(cls)
    # A doc that is its getter's is another getter's in a copy; one that was given stays.
    of_getter = type(fget) is types.FunctionType and fget.__doc__ == doc
    kind.__init__(made, fget, fset, fdel, None if of_getter else doc)
    if name is not None:
        kind.__set_name__(made, cls, name)
    return made


def reduce_descriptor(pickler: UnitContext, descriptor: Any) -> object:
    """Reduce a C descriptor of a class by its name there."""
    owner, name = descriptor.__objclass__, descriptor.__name__
    if _DICT.__get__(owner).get(name) is not descriptor:
        raise CannotTravel(f"The descriptor {name} is no longer in its class.")
    return entry_of, (owner, name)


@loader("methods:entry_of")
def entry_of(owner: type, name: str) -> Any:
    """Return an entry of a class's dictionary (called by payloads)."""
    return _DICT.__get__(owner)[name]


EXACT = {
    types.MethodType: reduce_method,
    classmethod: reduce_wrapper,
    staticmethod: reduce_wrapper,
    property: reduce_property,
    super: reduce_super,
    types.MemberDescriptorType: reduce_descriptor,
    types.GetSetDescriptorType: reduce_descriptor,
}
FAMILIES = [(property, reduce_property), (classmethod, reduce_wrapper), (staticmethod, reduce_wrapper)]
