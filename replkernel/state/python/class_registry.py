"""The classes that notebooks define, by an id that is the same on every replica.

A class that is defined again gets a new id, so old instances keep their class wherever they go.
Law: a class is held weakly; it dies when the notebook lets it go.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from replkernel.state.python.kinds import module_of, qualname_of

ROOT_PREFIX = "class:"
"""A component that carries the class of id X lists the name ``class:X``."""

SLOT_NAMES = "__slotnames__"
"""Where `copyreg` remembers the slots of a class."""

_DICT = type.__dict__["__dict__"]


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


# The order in which a class lists its subclasses: that in which the notebook defined them.
#
# Classes get their ids in that order, and ids tell it; a process that makes them again in another order sorts
# them afterwards. Law: only the notebook's classes are moved, behind each other, but for those of
# compiled metaclasses; `object` is left as it is.

_BASES = type.__dict__["__bases__"]
_FLAGS = type.__dict__["__flags__"]
_HEAP_TYPE = 1 << 9
_NOTEBOOK = "__main__"


def older_siblings(cls: type) -> Iterator[type]:
    """Yield the notebook's classes that derive from a base of `cls` and were there before it."""
    for base in _bases(cls):
        siblings: list[type] = type.__subclasses__(base)
        for sibling in siblings:
            if sibling is cls:
                break
            if module_of(sibling) == _NOTEBOOK:
                yield sibling


def sort(registry: ClassRegistry) -> None:
    """Put the notebook's classes in order below each of their bases."""
    classes = sorted(registry.living(), key=lambda cls: _age(registry, cls))
    bases = {id(base): base for cls in classes for base in _bases(cls)}
    if all(_is_sorted(_ages_below(registry, base)) for base in bases.values()):
        return
    for cls in classes:
        if _bases(cls) and not _is_of_compiled_metaclass(cls):
            with suppress(TypeError):
                _BASES.__set__(cls, _BASES.__get__(cls))


def _is_of_compiled_metaclass(cls: type) -> bool:
    """Tell whether a library's compiled metaclass made a class: what that has set in it (a struct that is
    frozen) Python would set anew with the bases."""
    kinds = type.__dict__["__mro__"].__get__(type(cls))
    return any(
        kind is not type and kind is not object and not _FLAGS.__get__(kind) & _HEAP_TYPE for kind in kinds
    )


def _bases(cls: type) -> tuple[type, ...]:
    return tuple(base for base in _BASES.__get__(cls) if base is not object)


def _ages_below(registry: ClassRegistry, base: type) -> list[tuple[int, int]]:
    below: list[type] = type.__subclasses__(base)
    return [_age(registry, cls) for cls in below if registry.id_of(cls) is not None]


def _age(registry: ClassRegistry, cls: type) -> tuple[int, int]:
    """Return the cell and the number in it by which a class was named."""
    _, seq, number = (registry.id_of(cls) or "@.0.0").rsplit(".", 2)
    return int(seq), int(number)


def _is_sorted(ages: Iterable[tuple[int, int]]) -> bool:
    found = list(ages)
    return found == sorted(found)
