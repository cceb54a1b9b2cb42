"""Instances of notebook classes that say how they are copied: by ``__reduce__``, ``__getstate__`` and so on.

Such a method says what a copy needs; a variable that moves must stay what it was, a cache included. None is
asked: it may count, and what it calls may need what is not here yet.
Law: the class has its way only where the rest cannot be copied, and for an instance that was rebuilt so and
has not changed since.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel, Reducer
from replkernel.state.python import instances
from replkernel.state.python.instances import HOOKS

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.library import ReducerContext


# Instances that their class's own way of copying has rebuilt here, and what they held then.
#
# A class has its way again for such an instance only as long as that holds the same: what it has been given
# since would be left out. Law: nothing is kept alive; what cannot be referred to weakly is not remembered.

_WEAKREFS = type.__dict__["__weakrefoffset__"]


class Rebuilt:
    """What was rebuilt, by id."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def note(self, instance: object, held: Callable[[], Any]) -> None:
        """Remember an instance with what `held` says that it holds."""
        if not _WEAKREFS.__get__(type(instance)):
            return
        key = id(instance)
        self._held[key] = weakref.ref(instance, lambda _: self._held.pop(key, None)), held()

    def is_as_noted(self, instance: object, held: Callable[[], Any]) -> bool:
        """Tell whether an instance was noted, and holds the same still."""
        ref, before = self._held.get(id(instance), (None, None))
        return ref is not None and ref() is instance and held() == before


def can_be_copied(context: ReducerContext, held: object) -> bool:
    """Tell whether what an instance holds travels past its class's way; only careful dumps look into it."""
    if context.careful:
        try:
            context.probe(held)
        except CannotTravel:
            return False
    return True


PROTOCOL = 5
_STATE = 2
"""Where a reduction has its state."""
_PARTS = 5
"""So many parts a reduction has without a setter of its own."""
_DICT_AND_SLOTS = 2
_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]

_rebuilt = Rebuilt()


def plan(cls: type) -> Reducer | None:
    """Return the reducer for instances of a class that says how they are copied; None if it alone knows."""
    bases = [_DICT.__get__(base) for base in _MRO.__get__(cls) if instances.is_notebooks(base)]
    said = [part for base in bases for name, part in base.items() if name in HOOKS]
    if not said or not all(type(part) is types.FunctionType for part in said):
        return None
    past_its_methods = instances.plan(cls, HOOKS)
    return None if past_its_methods is None else _unasked(past_its_methods)


def _unasked(past_its_methods: Reducer) -> Reducer:
    def reduce_unasked(pickler: UnitContext, value: Any) -> object:
        whole = past_its_methods(pickler, value)
        own_way = isinstance(whole, tuple) and _rebuilt.is_as_noted(value, lambda: _held(whole[_STATE]))
        if not own_way and can_be_copied(pickler, whole[_STATE]):
            return whole
        told = value.__reduce_ex__(PROTOCOL)
        return _noted(pickler.checked(value, told) if pickler.careful else told)

    return reduce_unasked


def _noted(told: object) -> object:
    """Return a reduction that notes what it made of an instance."""
    if not isinstance(told, tuple):
        return told
    function, arguments, state, *items = (*told, None, None, None)[:_PARTS]
    return make, (function, arguments), state, *items, load


@loader("reduced:make")
def make(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return an instance as its class wants it made, and note what that made of it (called by payloads)."""
    instance = function(*arguments)
    _note(instance)
    return instance


@loader("reduced:load")
def load(instance: Any, state: object) -> None:
    """Give an instance its state as its class wants it, and note what it made of it (called by payloads)."""
    if hasattr(type(instance), "__setstate__"):
        instance.__setstate__(state)
    else:
        attributes, slots = state if type(state) is tuple and len(state) == _DICT_AND_SLOTS else (state, None)
        if attributes:
            object.__getattribute__(instance, "__dict__").update(attributes)
        for name, value in (slots or {}).items():
            object.__setattr__(instance, name, value)
    _note(instance)


def _note(instance: object) -> None:
    _rebuilt.note(instance, lambda: _held_by(instance))


def _held_by(instance: object) -> dict[str, int]:
    past_its_methods = instances.plan(type(instance), HOOKS)
    if past_its_methods is None:
        return {}
    reader: Any = past_its_methods
    return _held(reader(None, instance)[_STATE])


def _held(state: object) -> dict[str, int]:
    """Return the attributes of a reduction past the class's methods, each by its value's id."""
    return {name: id(part) for name, part in _attributes(state)}


def _attributes(held: object) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a reduction past the class's methods: of the dictionary and of the slots."""
    attributes, slots = held[:2] if type(held) is tuple else (held, None)
    yield from (attributes or {}).items()
    for key, value in (slots or {}).items():
        yield key.partition(".")[2], value
