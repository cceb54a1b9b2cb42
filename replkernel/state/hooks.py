"""What users say about their own types: how to dump them, how to load them.

Registrations are state like any other: they travel, so that every replica dumps a type in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from replkernel.state.python.kinds import key_of

T = TypeVar("T")

HOOKS_ROOT = "hooks:registered"
"""The name under which the registrations travel."""

REGISTRATIONS = "replkernel.register"
"""What the registrations are called where they are told of, and no variable can be named."""

DUMP_METHOD = "__replkernel_dump__"
LOAD_METHOD = "__replkernel_load__"

_ALWAYS_COPIED = frozenset(
    [type(None), bool, int, float, str, bytes, bytearray, tuple, list, dict, set, frozenset]
)
"""What a pickler never asks anybody how to dump."""

_EVERYTHING = frozenset([object, type])

Registration = tuple[type, Callable[[Any], Any], Callable[[Any], Any]]
"""A class, and what was registered for it: its dump and its load."""

registered: list[Registration] = []


def register(cls: type[T], dump: Callable[[T], Any], load: Callable[[Any], T]) -> None:
    """Have instances of `cls` (and its subclasses) captured as `load(dump(instance))` on every replica.

    `dump` returns anything that can be captured but the instance itself, and must leave that as it is: it is
    called after each cell, several times where a capture needs it. `load` makes an object of the same class
    wherever one is taken in, and changes nothing else. A class of your own may define
    ``__replkernel_dump__(self)`` and ``__replkernel_load__(state)`` (static) instead.
    """
    if not isinstance(cls, type) or not callable(dump) or not callable(load):
        raise TypeError("register takes a class, a dump function and a load function.")
    if key_of(cls) in _ALWAYS_COPIED:
        raise TypeError(
            f"register takes no `{cls.__name__}`: the kernel copies those itself. Register your own class."
        )
    if key_of(cls) in _EVERYTHING:
        raise TypeError(f"register takes no `{cls.__name__}`: it would be asked for everything there is.")
    places = [place for place, (known, *_) in enumerate(registered) if known is cls] or [len(registered)]
    registered[places[0] :] = [(cls, dump, load), *registered[places[0] + 1 :]]


def registration_of(cls: type) -> Registration | None:
    """Return what was registered for this very class."""
    return next((row for row in registered if row[0] is cls), None)


def told_of(cls: type) -> str:
    """Return who says how instances of a class are copied, as a sentence that follows another; or nothing."""
    mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    name = type.__dict__["__qualname__"].__get__(cls)
    if any(registration_of(base) for base in mro):
        return f" What is registered for `{name}` (`replkernel.register`) does not keep everything."
    if any(DUMP_METHOD in type.__dict__["__dict__"].__get__(base) for base in mro):
        return f" `{name}.{DUMP_METHOD}` and `{LOAD_METHOD}` do not keep everything."
    return ""


def adopt(hooks: Any) -> None:
    """Replace the registrations by those of another replica; earlier versions tell them by class."""
    registered[:] = [(cls, *ways) for cls, ways in hooks.items()] if isinstance(hooks, dict) else hooks
