"""Instances of notebook classes with a ``__getstate__`` that leaves something out.

Such a method says what a copy needs; a variable that moves must stay what it was, a cache included.
Law: the class has its way while its state holds all there is, where the rest cannot be copied, and for
what its own way has put into an instance that was rebuilt so.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers import instances
from replkernel.namespace.reducers.outcome import CannotTravel, Reducer

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

PROTOCOL = 5
_STATE_HOOKS = frozenset({"__getstate__", "__setstate__"})
_STATE = 2
"""Where a reduction has its state."""
_DICT_AND_SLOTS = 2
_MISSING = object()
_MRO = type.__dict__["__mro__"]
_DICT = type.__dict__["__dict__"]
_WEAKREFS = type.__dict__["__weakrefoffset__"]

_rebuilt: dict[int, tuple[weakref.ref[Any], dict[str, int]]] = {}
"""The instances that their class's own way has rebuilt here, and the ids of the attributes that it made."""


def plan(cls: type) -> Reducer | None:
    """Return the reducer for instances of a class with a ``__getstate__``; None when it says more or less."""
    if not _WEAKREFS.__get__(cls) or not any(
        "__getstate__" in _DICT.__get__(base) for base in _MRO.__get__(cls)[:-1]
    ):
        return None
    past_its_methods = instances.plan(cls, _STATE_HOOKS)
    return None if past_its_methods is None else _whole(past_its_methods)


def _whole(past_its_methods: Reducer) -> Reducer:
    def reduce_whole(pickler: CapturePickler, value: Any) -> Any:
        told = value.__reduce_ex__(PROTOCOL)
        whole = past_its_methods(pickler, value)
        if not isinstance(whole, tuple) or not _leaves_out(value, told, whole):
            return _by_its_own_way(pickler, value, told)
        if pickler.careful:
            try:
                pickler.probe(whole[_STATE])
            except CannotTravel:
                return _by_its_own_way(pickler, value, told)
        return whole

    return reduce_whole


def _by_its_own_way(pickler: CapturePickler, value: Any, told: Any) -> Any:
    reduced = pickler.checked(value, told) if pickler.careful else told
    if not isinstance(reduced, tuple) or len(reduced) <= _STATE or reduced[_STATE] is None:
        return reduced
    return (*(*reduced, None, None)[:5], load)


def load(instance: Any, state: Any) -> None:
    """Give an instance its state as its class wants it, and note what it made of it (called by payloads)."""
    if hasattr(type(instance), "__setstate__"):
        instance.__setstate__(state)
    else:
        attributes, slots = state if type(state) is tuple and len(state) == _DICT_AND_SLOTS else (state, None)
        if attributes:
            object.__getattribute__(instance, "__dict__").update(attributes)
        for name, value in (slots or {}).items():
            object.__setattr__(instance, name, value)
    key = id(instance)
    held = {name: id(value) for name, value in _attributes_of(instance)}
    _rebuilt[key] = weakref.ref(instance, lambda _: _rebuilt.pop(key, None)), held


def _attributes_of(instance: Any) -> Iterator[tuple[str, Any]]:
    past_its_methods = instances.plan(type(instance), _STATE_HOOKS)
    if past_its_methods is not None:
        reader: Any = past_its_methods
        yield from _attributes(reader(None, instance)[_STATE])


def _leaves_out(value: Any, told: Any, whole: Any) -> bool:
    """Tell whether an attribute is not in what a class tells of its instance, or is another object there."""
    state = told[_STATE] if isinstance(told, tuple) and len(told) > _STATE else None
    kept: dict[Any, Any] = {}
    for part in _dictionaries(state):
        kept.update(part)
    left_out = [
        (name, held) for name, held in _attributes(whole[_STATE]) if kept.get(name, _MISSING) is not held
    ]
    ref, made = _rebuilt.get(id(value), (None, {}))
    if ref is not None and ref() is not value:
        made = {}
    return any(made.get(name) != id(held) for name, held in left_out)


def _dictionaries(state: Any) -> list[dict[Any, Any]]:
    parts = state if type(state) is tuple and len(state) == _DICT_AND_SLOTS else (state,)
    return [part for part in parts if isinstance(part, dict)]


def _attributes(held: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a reduction past the class's methods: of the dictionary and of the slots."""
    attributes, slots = held[:2] if type(held) is tuple else (held, None)
    yield from (attributes or {}).items()
    for key, value in (slots or {}).items():
        yield key.partition(".")[2], value
