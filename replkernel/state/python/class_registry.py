"""The classes that notebooks define, by an id that is the same on every replica.

A class that is defined again gets a new id, so old instances keep their class wherever they go.
Law: a class is held weakly; it dies when the notebook lets it go.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

ROOT_PREFIX = "class:"
"""A component that carries the class of id X lists the name ``class:X``."""

SLOT_NAMES = "__slotnames__"
"""Where `copyreg` remembers the slots of a class."""

_DICT = type.__dict__["__dict__"]


def qualname_of(cls: type) -> str:
    """Return the class's qualified name without asking its metaclass."""
    return str(type.__dict__["__qualname__"].__get__(cls))


def module_of(cls: type) -> str:
    """Return the name of the module that says it made the class, without asking its metaclass."""
    if type.__dict__["__flags__"].__get__(cls) & (1 << 9):
        return str(type.__dict__["__dict__"].__get__(cls).get("__module__", "builtins"))
    return str(type.__dict__["__module__"].__get__(cls))


class ClassRegistry:
    """The notebook's classes of this process."""

    def __init__(self) -> None:
        self._ids: dict[int, tuple[weakref.ref[type], str]] = {}
        self._classes: dict[str, weakref.ref[type]] = {}
        self._made = 0

    def id_of(self, cls: type) -> str | None:
        """Return the id of `cls`; None when it has none yet."""
        entry = self._ids.get(id(cls))
        return entry[1] if entry is not None and entry[0]() is cls else None

    def name(self, cls: type, replica: str, seq: int) -> str:
        """Give `cls` an id, if it has none, and return it."""
        known = self.id_of(cls)
        if known is not None:
            return known
        self._made += 1
        class_id = f"{qualname_of(cls)}@{replica}.{seq}.{self._made}"
        self.enroll(cls, class_id)
        return class_id

    def enroll(self, cls: type, class_id: str) -> None:
        """Note that `cls` is the class of that id in this process."""
        class_id = sys.intern(class_id)
        key = id(cls)

        def gone(dead: weakref.ref[type]) -> None:
            entry = self._ids.get(key)
            if entry is not None and entry[0] is dead:
                del self._ids[key]
            if self._classes.get(class_id) is dead:
                del self._classes[class_id]

        held = weakref.ref(cls, gone)
        self._ids[key] = (held, class_id)
        self._classes[class_id] = held

    def find(self, class_id: str) -> type | None:
        """Return the class of that id, if this process has it."""
        held = self._classes.get(class_id)
        return None if held is None else held()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Take away what pickling leaves in classes, if it was not there before: a user may look at them."""
        before = {id(cls) for cls in self.living() if SLOT_NAMES in _DICT.__get__(cls)}
        try:
            yield
        finally:
            for cls in self.living():
                if SLOT_NAMES in _DICT.__get__(cls) and id(cls) not in before:
                    type.__delattr__(cls, SLOT_NAMES)

    def living(self) -> list[type]:
        """Return all classes that are alive."""
        return [cls for held in list(self._classes.values()) if (cls := held()) is not None]
