"""Plain values of Python's library that a call with plain arguments makes: dates, paths, fractions, code.

Law: pure; only values of exactly these types are asked, and no code of the notebook runs.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import sys
import types
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from replkernel.state.python.codes import call_of_code

Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]


def _reduced(value: Any) -> Call | None:
    made = value.__reduce_ex__(4)
    return made if type(made) is tuple and len(made) == 2 and made[0] is type(value) else None


def _complex(value: complex) -> Call:
    return complex, (value.real, value.imag)


def _range(value: range) -> Call:
    return range, (value.start, value.stop, value.step)


def _uuid(value: uuid.UUID) -> Call | None:
    return (uuid.UUID, (value.hex,)) if value.is_safe is uuid.SafeUUID.unknown else None


def _timezone(value: datetime.timezone) -> Call:
    return datetime.timezone, value.__getinitargs__()  # type: ignore[attr-defined]


_CALLS: dict[type, Callable[[Any], Call | None]] = {
    complex: _complex,
    range: _range,
    uuid.UUID: _uuid,
    datetime.timezone: _timezone,
    types.CodeType: call_of_code,
    **dict.fromkeys(
        (
            datetime.date,
            datetime.datetime,
            datetime.time,
            datetime.timedelta,
            decimal.Decimal,
            fractions.Fraction,
            pathlib.PosixPath,
            pathlib.PurePosixPath,
            pathlib.PureWindowsPath,
        ),
        _reduced,
    ),
}
KINDS = frozenset(_CALLS)


def call_of(value: Any) -> Call | None:
    """Return the type of a value, and the arguments that make it; None where its name stands for another."""
    kind = type(value)
    if kind is types.CodeType:
        return call_of_code(value)
    there = vars(sys.modules[kind.__module__]).get(kind.__name__)
    return _CALLS[kind](value) if there is kind else None
