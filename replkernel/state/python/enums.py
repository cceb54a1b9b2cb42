"""Members of an Enum of the notebook's: by value, and whole inside the definition of their own class.

A member is made past the Enum's `__new__`, and read past what it says of itself (``str(member)``).
"""

from __future__ import annotations

import datetime
import decimal
import enum
import pickle
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python import instances
from replkernel.state.python.kinds import key_of, qualname_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]


def reduce_enum_member(pickler: UnitContext, member: enum.Enum) -> object:
    """Reduce an Enum's member: by value, except inside the definition of its own class."""
    cls = type(member)
    if pickler.world.classes.id_of(cls) not in pickler.own_classes:
        pickler.unlinked.add(id(member))
        return NotImplemented
    kind, args = _raw(_DICT.__get__(cls).get("_member_type_", object), member)
    state = dict(member.__dict__)
    slots = instances.held_in(member, instances.slots_of(cls))
    told: tuple[Any, ...] = (state.get("_name_"),)
    if told == (None,) and type(state.get("_value_")) is int:
        told = (None, state["_value_"])
    return make_member, (cls, kind, args, *told), (state, slots) if slots else state, None, None, fill_member


def _raw(kind: type, member: enum.Enum) -> tuple[Any, tuple[Any, ...]]:
    """Return the built-in type below a member, and its plain value: ``str(member)`` may be the Enum's own."""
    mro = _MRO.__get__(kind)
    base = instances.base_of(mro, frozenset())
    if base is object:
        return object, ()
    if base in instances.VALUES:
        return base, instances.VALUES[base](member)
    for one in mro:
        if key_of(one) in _TOLD_BY_ITS_TYPE:
            return one, one.__reduce_ex__(member, pickle.HIGHEST_PROTOCOL)[1]
    raise CannotTravel(f"An Enum over {qualname_of(kind)} cannot be copied.")


_TOLD_BY_ITS_TYPE = frozenset(
    {datetime.date, datetime.time, datetime.datetime, datetime.timedelta, decimal.Decimal}
)
"""Built-in types whose own reduction gives the arguments that make an equal value of a child."""


@loader("enum:make_member")
def make_member(
    cls: object, kind: Any, args: tuple[Any, ...], name: str | None = None, value: int | None = None
) -> object:
    """Return the member that a class which is changed in place has already, or a bare one (by payloads).

    A flag without any of its names, as the empty one, is known by its value.
    """
    entries = _DICT.__get__(cls)
    if value is not None:
        nameless = entries.get("_value2member_map_", {}).get(value)
        if type(nameless) is cls and vars(nameless).get("_name_") is None:
            return nameless
    for known in (*entries.get("_member_map_", {}).values(), *entries.get("_value2member_map_", {}).values()):
        if type(known) is cls and vars(known).get("_name_") == name is not None:
            return known
    return kind.__new__(cls, *args)


@loader("enum:fill_member")
def fill_member(member: object, state: object) -> None:
    """Give a member its attributes, and what it has in slots of a class below (called by payloads)."""
    attributes, slots = state if type(state) is tuple else (state, {})
    held = member.__dict__
    for name in [name for name in held if name not in attributes]:
        del held[name]
    held.update(attributes)
    instances.fill_slots(member, slots)


FAMILIES = [(enum.Enum, reduce_enum_member)]
