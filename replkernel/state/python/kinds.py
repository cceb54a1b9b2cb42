"""The classes of values as tables may be asked for them, and what they are called: no metaclass is called.

To look a class up in a set, a dictionary or a tuple calls what its metaclass has under ``__hash__`` and
``__eq__``. Law: for a class whose metaclass would be asked stands `Odd`, which no table has; what is kept
of such a class itself is found by its identity.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

Kind = TypeVar("Kind")

_MRO = type.__dict__["__mro__"]
_OWN = type.__getattribute__
_HASH, _EQ = object.__hash__, object.__eq__


class Odd:
    """Stands for every class that says itself how it is hashed, or to which others it is equal."""


def kind_of(value: object) -> type:
    """Return the class of a value; `Odd` for one whose metaclass would be asked in a lookup."""
    kind = type(value)
    return kind if type(kind) is type else key_of(kind)


def key_of(kind: type) -> type:
    """Return a class; `Odd` for one whose metaclass would be asked in a lookup."""
    meta = type(kind)
    if meta is type or (_OWN(meta, "__hash__") is _HASH and _OWN(meta, "__eq__") is _EQ):
        return kind
    return Odd


def one_of(kinds: Iterable[type]) -> Callable[[Iterable[object]], Iterator[bool]]:
    """Return what tells of each of many values whether its very class is among `kinds`, which live on.

    It calls nothing that is written in Python, for there may be thousands of variables.
    """
    known = frozenset(map(id, kinds)).__contains__
    return lambda values: map(known, map(id, map(type, values)))


def lineage(kind: type) -> tuple[type, ...]:
    """Return a class and those that it derives from, in their order; `Odd` for each that would be asked."""
    mro: tuple[type, ...] = _MRO.__get__(kind)
    # What derives from a class has its metaclass, or a child of that.
    return mro if type(kind) is type else tuple(map(key_of, mro))


def is_a(value: object, kinds: type[Kind] | tuple[type[Kind], ...]) -> TypeGuard[Kind]:
    """Tell whether a value is of one of Python's own classes, or of a child of it.

    As `isinstance`, but what the value says of its class (a ``__class__`` property) is not asked.
    """
    return issubclass(type(value), kinds)


def derives(kind: type, base: type) -> bool:
    """Tell whether a class is another one or derives from it, as Python made it."""
    return any(one is base for one in _MRO.__get__(kind))


def entry_of(table: Mapping[Any, Any], kind: type) -> Any:
    """Return what a table has for a class; None when it has nothing."""
    if key_of(kind) is not Odd:
        return table.get(kind)
    return next((held for known, held in list(table.items()) if known is kind), None)


class ClassKey:
    """A class as a key of a dictionary, by its identity."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __hash__(self) -> int:
        return id(self.cls)

    def __eq__(self, other: object) -> bool:
        return type(other) is ClassKey and other.cls is self.cls


def as_key(value: Any) -> object:
    """Return what stands for a value as a key: a `ClassKey` for a class whose metaclass would be asked."""
    return ClassKey(value) if issubclass(type(value), type) and key_of(value) is Odd else value


def of_key(key: object) -> object:
    """Return the value that `as_key` was given."""
    return key.cls if type(key) is ClassKey else key


class Classes:
    """A set of classes that are held weakly, each by its identity."""

    def __init__(self) -> None:
        self._held: dict[int, weakref.ref[type]] = {}

    def add(self, cls: type) -> None:
        """Put a class in."""
        key = id(cls)
        if cls in self:
            return

        def gone(dead: weakref.ref[type]) -> None:
            if self._held.get(key) is dead:
                del self._held[key]

        self._held[key] = weakref.ref(cls, gone)

    def __contains__(self, cls: type) -> bool:
        held = self._held.get(id(cls))
        return held is not None and held() is cls

    def __iter__(self) -> Iterator[type]:
        return iter([cls for held in list(self._held.values()) if (cls := held()) is not None])


def qualname_of(cls: type) -> str:
    """Return the class's qualified name without asking its metaclass."""
    return str(type.__dict__["__qualname__"].__get__(cls))


def module_of(cls: type) -> str:
    """Return the name of the module that says it made the class, without asking its metaclass."""
    if type.__dict__["__flags__"].__get__(cls) & (1 << 9):
        return str(type.__dict__["__dict__"].__get__(cls).get("__module__", "builtins"))
    return str(type.__dict__["__module__"].__get__(cls))


def type_name(value: object) -> str:
    """Return the name of the value's type as a user knows it."""
    return name_of(type(value))


def name_of(cls: type) -> str:
    """Return the name of a type as a user knows it."""
    module = module_of(cls)
    return qualname_of(cls) if module in ("builtins", "__main__") else f"{module}.{qualname_of(cls)}"
