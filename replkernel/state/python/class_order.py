"""The order in which a class lists its subclasses: that in which the notebook defined them.

Classes get their ids in that order, and ids tell it; a process that makes them again in another order sorts
them afterwards. Law: only the notebook's classes are moved, behind each other, but for those of
compiled metaclasses; `object` is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from replkernel.state.python.class_registry import module_of

if TYPE_CHECKING:
    from replkernel.state.python.class_registry import ClassRegistry

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
