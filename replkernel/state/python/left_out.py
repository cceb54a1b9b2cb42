"""What a reduction by Python's own types leaves out of an instance: attributes, mostly of a notebook's class.

A date, a fraction or a path tells of itself only its value, whatever a subclass has put into its instances.
Law: what is told stays as it is told; only attributes are added, and none that cannot be copied.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel, Reducer
from replkernel.state.python import instances
from replkernel.state.python.kinds import is_a, key_of, module_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

PROTOCOL = 5
_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__")
_NOTEBOOK = "__main__"
_STATE = 2
_DICT_AND_SLOTS = 2
_MISSING = object()
_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
Rest = tuple[dict[str, Any], dict[str, Any]]
"""Attributes by name, and what is in slots by their depth and name."""

_BY_NEW: frozenset[type] = frozenset({
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal,
    fractions.Fraction,
})  # fmt: skip
"""Types that are copied by ``__new__`` and what they tell: the notebook's class may have one of its own."""

_RANDOM: Any = random.Random.__mro__[1]


def plan(cls: type) -> Reducer | None:
    """Return the reducer for instances of a class with attributes whose reduction is Python's own."""
    mro = _MRO.__get__(cls)
    if not instances.has_attributes(cls) and key_of(_says_how(mro)) not in _BY_NEW:
        return None
    if _says_how(mro) is random.Random:
        return reduce_random
    said = _says_how(mro)
    if said is object or module_of(said).partition(".")[0] not in sys.stdlib_module_names:
        return None
    return reduce_with_attributes


def _says_how(mro: tuple[type, ...]) -> type:
    """Return the first class that defines how instances are reduced."""
    return next(base for base in mro if any(name in _DICT.__get__(base) for name in _HOOKS))


def reduce_with_attributes(pickler: UnitContext, value: Any) -> object:
    """Reduce an instance as its type does, with the attributes that this leaves out."""
    told = _by_new(value, value.__reduce_ex__(PROTOCOL))
    reduced = pickler.checked(value, told) if pickler.careful else told
    if not isinstance(reduced, tuple) or len(reduced) > len(("make", "of", "state", "items", "pairs")):
        return reduced
    state = reduced[_STATE] if len(reduced) > _STATE else None
    left_out = _left_out(value, state)
    if left_out is None:
        return reduced
    if pickler.careful:
        try:
            pickler.probe(left_out)
        except CannotTravel:
            return reduced
    return (*reduced[:_STATE], (state, left_out), *(*reduced[_STATE + 1 :], None, None)[:2], fill)


def _by_new(value: object, told: object) -> object:
    """Return what a type tells of an instance, made past the methods of the notebook's class."""
    if not isinstance(told, tuple) or told[0] is not type(value):
        return told
    base = _says_how(_MRO.__get__(told[0]))
    return (make, (base, *told[:2]), *told[_STATE:]) if key_of(base) in _BY_NEW else told


@loader("reduced_extras:make")
def make(base: Any, cls: object, arguments: tuple[Any, ...]) -> Any:
    """Return an instance of a notebook class as its base makes it (called by payloads)."""
    return base.__new__(cls, *arguments)


def _left_out(value: object, state: object) -> Rest | None:
    """Return the attributes and slots that are not in a told state; None when all are."""
    kept: dict[Any, Any] = {}
    for part in state if type(state) is tuple else (state,):
        if is_a(part, dict):
            kept.update(part)

    def missing(name: str, held: object) -> bool:
        return kept.get(name, _MISSING) is not held

    attributes = {name: held for name, held in instances.attributes_of(value).items() if missing(name, held)}
    in_slots = _in_slots(value)
    slots = {key: held for key, held in in_slots.items() if missing(key.partition(".")[2], held)}
    return (attributes, slots) if attributes or slots else None


def _in_slots(value: object) -> dict[str, Any]:
    """Return what is in the slots that notebook classes gave an instance."""
    mro = _MRO.__get__(type(value))
    slots = [
        (key, get)
        for key, get in instances.slots_of(type(value))
        if module_of(mro[int(key.partition(".")[0])]) == _NOTEBOOK
    ]
    return instances.held_in(value, slots)


@loader("reduced_extras:fill")
def fill(instance: object, state: tuple[Any, Rest]) -> None:
    """Give an instance its state as its type wants it, and the rest (called by payloads)."""
    told, left_out = state
    if told is not None:
        _fill_as_told(instance, told)
    _fill_rest(instance, left_out)


def _fill_as_told(instance: Any, told: tuple[Any, ...]) -> None:
    if hasattr(type(instance), "__setstate__"):
        instance.__setstate__(told)
        return
    both = type(told) is tuple and len(told) == _DICT_AND_SLOTS
    attributes, slots = told if both else (told, None)
    instances.attributes_of(instance).update(attributes or {})
    for name, value in (slots or {}).items():
        object.__setattr__(instance, name, value)


def _fill_rest(instance: object, rest: Rest) -> None:
    attributes, slots = rest
    instances.attributes_of(instance).update(attributes)
    instances.fill_slots(instance, slots)


def reduce_random(pickler: UnitContext, source: random.Random) -> object:
    """Reduce a source of random numbers of the notebook's class, whose ``__init__`` may want anything."""
    rest = dict(instances.attributes_of(source)), _in_slots(source)
    return make_random, (type(source),), (_RANDOM.getstate(source), rest), None, None, fill_random


@loader("reduced_extras:make_random")
def make_random(cls: object) -> object:
    """Return a source of random numbers (called by payloads)."""
    return _RANDOM.__new__(cls)


@loader("reduced_extras:fill_random")
def fill_random(source: object, state: tuple[Any, Rest]) -> None:
    """Put a source where it was, and give it its attributes (called by payloads)."""
    place, rest = state
    _RANDOM.setstate(source, place)
    _fill_rest(source, rest)


def reduce_counter(pickler: UnitContext, counter: Counter[Any]) -> object:
    """Reduce a counter of Python's own, which the notebook may have given attributes."""
    return reduce_with_attributes(pickler, counter) if vars(counter) else NotImplemented


EXACT = {Counter: reduce_counter}
