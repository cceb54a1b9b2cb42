"""Small values of the standard library that pickle refuses, or knows by a name that only this process has."""

from __future__ import annotations

import datetime
import random
import struct
import typing
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.modules import find_global
from replkernel.state.python.typing import notes_on

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_struct(pickler: UnitContext, layout: struct.Struct) -> object:
    """Reduce a Struct to its format."""
    return struct.Struct, (layout.format,)


def reduce_newtype(pickler: UnitContext, kind: Any) -> object:
    """Reduce a NewType."""
    if (
        find_global(kind.__module__, kind.__qualname__) is kind
        and kind.__module__ != pickler.world.seeds.main_name
    ):
        return NotImplemented
    return make_newtype, (kind.__qualname__, kind.__supertype__, kind.__module__), *notes_on(kind)


@loader("small_values:make_newtype")
def make_newtype(name: str, base: object, module: str) -> object:
    """Return a NewType (called by payloads)."""
    new_type = typing.NewType
    made = new_type(name, base)
    made.__module__ = module
    return made


def reduce_system_random(pickler: UnitContext, source: random.SystemRandom) -> object:
    """Reduce a source of the system's random numbers, which has no state."""
    return random.SystemRandom, ()


_WEEK_DATE: type = type(datetime.date(2000, 1, 3).isocalendar())


def reduce_week_date(pickler: UnitContext, value: Any) -> object:
    """Reduce a date by its week: it tells that it is a tuple."""
    return make_week_date, tuple(value)


@loader("small_values:make_week_date")
def make_week_date(year: int, week: int, day: int) -> object:
    """Return a date by its week (called by payloads)."""
    return datetime.date.fromisocalendar(year, week, day).isocalendar()


EXACT: dict[type, Any] = {
    _WEEK_DATE: reduce_week_date,
    random.SystemRandom: reduce_system_random,
    struct.Struct: reduce_struct,
    typing.NewType: reduce_newtype,
}
