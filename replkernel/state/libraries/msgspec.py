"""Structs of msgspec: classes from the fields that msgspec keeps of them, instances field by field.

msgspec keeps the fields, defaults and options of a class out of its dictionary, and makes them from a class's
definition: one is written anew, with the annotations left for later. Law: neither `__post_init__` nor a
default's factory runs when something is rebuilt.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import json, msgpack

from replkernel.loaders import loader
from replkernel.state.python import instances
from replkernel.state.python.kinds import derives
from replkernel.state.python.paths import getter_among

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_KEPT_HASH = "__msgspec_cached_hash__"
"""Where an instance keeps its hash, which depends on where its class lies in memory."""

MIXIN: type = _MRO.__get__(msgspec.Struct)[1]
"""The built-in type below every struct, which has no name to import."""

_OPTIONS = (
    "frozen", "eq", "order", "tag", "tag_field", "omit_defaults", "repr_omit_defaults",
    "forbid_unknown_fields", "array_like", "gc", "weakref", "dict", "cache_hash",
)  # fmt: skip
_FACTORY = type(
    msgspec.defstruct("_", [("x", list, msgspec.field(default_factory=list))]).__struct_defaults__[0]
)

_allocate = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)(
    ("PyType_GenericAlloc", ctypes.pythonapi)
)


def is_struct_class(cls: type) -> bool:
    """Tell whether a class is a struct of msgspec."""
    return derives(cls, MIXIN)


def definition(cls: Any) -> tuple[Any, ...]:
    """Return what msgspec is told when the class is made: its own fields with their defaults, and options.

    Options that are not as msgspec has them when nothing is said are told, also those that a base has.
    """
    defaults = cls.__struct_defaults__
    fields: tuple[str, ...] = cls.__struct_fields__
    first = len(fields) - len(defaults)
    own = _DICT.__get__(cls).get("__annotations__", {})
    told: list[tuple[Any, ...]] = []
    for place, name in enumerate(fields):
        if name in own:
            value = defaults[place - first] if place >= first else msgspec.NODEFAULT
            if value is msgspec.NODEFAULT:
                told.append((name,))
            elif type(value) is _FACTORY:
                told.append((name, "made", value.factory))
            else:
                told.append((name, "is", value))
    config = cls.__struct_config__
    options: dict[str, Any] = {name: getattr(config, name) for name in _OPTIONS}
    options["kw_only"] = any(name not in cls.__match_args__ for name, *_ in told)
    renamed = zip(fields, cls.__struct_encode_fields__, strict=True)
    options["rename"] = {name: sent for name, sent in renamed if name != sent} or None
    return tuple(told), options, hasattr(cls, "__post_init__")


def body(told: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the entries and the options from which msgspec makes a class of that definition."""
    fields, options, is_called_after = told
    scope: dict[str, Any] = {"__annotations__": dict.fromkeys([name for name, *_ in fields], object)}
    for name, *default in fields:
        if default:
            kind, value = default
            scope[name] = msgspec.field(**{"default_factory" if kind == "made" else "default": value})
    if is_called_after:
        scope["__post_init__"] = _call_after
    return scope, options


def _call_after(instance: Any) -> None:
    """Call what the class calls when an instance is made: msgspec remembers what the class had at first."""
    type(instance).__post_init__(instance)


def reduce_struct(context: ReducerContext, value: object) -> object:
    """Reduce an instance of a notebook's struct to what its fields hold."""
    cls = type(value)
    if not instances.is_notebooks(cls) or instances.says_how_it_pickles(cls):
        return NotImplemented
    getter = getter_among(_MRO.__get__(cls))
    slots = [slot for slot in instances.slots_of(cls) if not slot[0].endswith(_KEPT_HASH)]
    held = instances.held_in(value, slots)
    state = (None if getter is None else getter.__get__(value), held or None, None, None)
    return make_struct, (cls,), state, None, None, instances.fill


@loader("msgspec:make_struct")
def make_struct(cls: object) -> object:
    """Return an instance whose fields are not set yet (called by payloads)."""
    return _allocate(cls, 0)


_CODERS: dict[type, tuple[str, ...]] = {
    json.Encoder: ("enc_hook", "decimal_format", "uuid_format", "order"),
    msgpack.Encoder: ("enc_hook", "decimal_format", "uuid_format", "order"),
    json.Decoder: ("type", "strict", "dec_hook", "float_hook"),
    msgpack.Decoder: ("type", "strict", "dec_hook", "ext_hook"),
}


def reduce_coder(context: ReducerContext, coder: object) -> object:
    """Reduce an encoder or decoder to what it was made with."""
    return make_coder, (type(coder), {name: getattr(coder, name) for name in _CODERS[type(coder)]})


@loader("msgspec:make_coder")
def make_coder(cls: Any, options: dict[str, Any]) -> object:
    """Return an encoder or decoder (called by payloads)."""
    return cls(**options)


EXACT = dict.fromkeys(_CODERS, reduce_coder)
FAMILIES = [(MIXIN, reduce_struct)]
