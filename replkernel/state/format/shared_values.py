"""Which text, bytes, tuples and other plain values several components hold as one object: each has a name.

The name is the same on every replica. Components are joined by mutable objects alone, so a text or a date
that a variable and a list of another one hold would become two. A unit that holds such values defines them in
front of its stream, and takes them from its memo. A date, a path or a fraction is told by the call that makes
it. Law: a name stands for one object as long as a process has it; interned text is named by itself; only
values of exactly these types are asked, and no code of the notebook runs.
"""

from __future__ import annotations

import ctypes
import datetime
import decimal
import fractions
import functools
import pathlib
import pickle
import secrets
import struct
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from replkernel.loaders import loader
from replkernel.state.format.frozen_order import made, way_of
from replkernel.state.python.codes import call_of_code
from replkernel.state.python.kinds import key_of, kind_of
from replkernel.state.restore import loading
from replkernel.state.seeds import SEED_TOKENS

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
CALLED = frozenset(_CALLS)


def call_of(value: Any) -> Call | None:
    """Return the type of a value, and the arguments that make it; None where its name stands for another."""
    kind = type(value)
    if kind is types.CodeType:
        return call_of_code(value)
    there = vars(sys.modules[kind.__module__]).get(kind.__name__)
    return _CALLS[kind](value) if there is kind else None


Value: TypeAlias = Any
"""Text, bytes, a tuple or a frozenset, or a value that a call makes."""

Name: TypeAlias = str | bytes
"""Six random bytes; an interned text goes by itself."""

VALUES_MAX = 10_000
BYTES_MAX = 16 << 20
"""So many values have a name at a time, of so many bytes; others are copied with what holds them."""
SIZE_MAX = 64 * 1024
"""Longer values join those that hold them."""

MEMBERS_MAX = 100
"""A tuple of more values than this, those in its tuples included, is copied."""
_GROUPS = frozenset({tuple, frozenset})
KINDS = frozenset({str, bytes, *_GROUPS, *CALLED})
_TEXTS = frozenset({str, bytes})
_PLAIN = frozenset({*_TEXTS, int, float, bool, type(None)})

_BY_VALUE = frozenset({*_TEXTS, frozenset})
"""What is compared by its value: the order of a frozenset says nothing."""

_NAME_BYTES = 6
_SHORT_MAX = 255
_NO_PLACES: Mapping[int, int] = {}
_LENGTH = struct.Struct("<I")


class SharedValues:
    """The values of one process that have a name, and which of them each unit holds."""

    def __init__(self) -> None:
        self.names: dict[int, tuple[Name, Value]] = {}
        """By id: the values that have a name, with that."""
        self._values: dict[Name, Value] = {}
        self._held: dict[tuple[str, ...], tuple[Name, ...]] = {}
        self._bytes = 0

    def __contains__(self, key: int) -> bool:
        return key in self.names

    def held_by(self, roots: tuple[str, ...]) -> tuple[Value, ...]:
        """Return the values that a unit was said to hold, in the order in which it tells them."""
        names = self._held.get(roots)
        if not names:
            return ()
        return tuple(value for name in names if (value := self._values.get(name)) is not None)

    def hold(self, roots: tuple[str, ...], values: Iterable[Value]) -> None:
        """Note what a unit holds."""
        names = tuple(self.names[id(value)][0] for value in values if id(value) in self.names)
        if names:
            self._held[roots] = names
        else:
            self._held.pop(roots, None)

    def among(self, memo: Mapping[int, tuple[int, Any]]) -> tuple[Value, ...]:
        """Return the values that a dump has met, in the order in which it came to them."""
        found = sorted(memo[key] for key in self.names.keys() & memo.keys())
        return tuple(value for _, value in found)

    def enter(self, value: Value) -> bool:
        """Give a value a name; False when there is no more room."""
        name = value if isinstance(value, str) and is_interned(value) else None
        return self._enter(value, name or secrets.token_bytes(_NAME_BYTES))

    def take(self, value: Value, name: bytes) -> Value:
        """Return this process's object of a name, which is `value` when there is none."""
        if not name and isinstance(value, str):
            value = sys.intern(value)
            self._enter(value, value)
            return value
        known = self._values.get(name)
        if known is not None and _same(known, value):
            return known
        self._enter(value, name)
        return value

    def _enter(self, value: Value, name: Name) -> bool:
        if not self._has_room(value):
            self._forget()
        if not self._has_room(value):
            return False
        if id(value) not in self.names:
            self._bytes += _size(value)
        self.names[id(value)] = name, value
        self._values[name] = value
        return True

    def _has_room(self, value: Value) -> bool:
        return len(self.names) < VALUES_MAX and self._bytes + _size(value) <= BYTES_MAX

    def _forget(self) -> None:
        """Forget the values that only this table holds."""
        for key in list(self.names):
            name, value = self.names[key]
            own = _IN_TABLES + (name is value) * 2
            if sys.getrefcount(value) <= own:
                self._bytes -= _size(value)
                del self.names[key]
                if self._values.get(name) is value:
                    del self._values[name]

    # -- in a stream -----------------------------------------------------------------------------------

    def definitions(self, values: Iterable[Value]) -> bytes:
        """Return the opcodes that put values into an unpickler's memo, behind the seeds."""
        call = _from_memo(len(SEED_TOKENS))
        out = bytearray(_GLOBAL)
        places: dict[int, int] = {}
        for place, value in enumerate(values, len(SEED_TOKENS) + 1):
            name = self.names[id(value)][0]
            out += call + _literal(value, places) + _literal(name if isinstance(name, bytes) else b"")
            out += pickle.TUPLE2 + pickle.REDUCE + pickle.MEMOIZE + pickle.POP
            places[id(value)] = place
        return bytes(out)


def memo_with(memo: dict[int, tuple[int, Any]], values: Iterable[Value]) -> dict[int, tuple[int, Any]]:
    """Return a pickler's memo of seeds with values behind them, as `definitions` gives it to an unpickler."""
    memo[id(shared_value)] = len(memo), shared_value
    for value in values:
        memo[id(value)] = len(memo), value
    return memo


def tells(value: Any) -> bool:
    """Tell whether it is worth saying that a value is shared: Python itself has but one of the smallest."""
    kind = type(value)
    if kind is str or kind is bytes:
        return 1 < len(value) < SIZE_MAX
    if kind is tuple:
        return 0 < len(value) <= MEMBERS_MAX and _is_plain(value)
    return key_of(kind) in KINDS and _is_plain((value,))


def _is_plain(value: tuple[Any, ...]) -> bool:
    """Tell whether a tuple is made of text, bytes, plain values and groups of such, a few, and no NaN."""
    left: list[Any] = [value]
    count = 0
    while left:
        members = left.pop()
        count += len(members)
        for member in members:
            kind = kind_of(member)
            if kind in _GROUPS:
                left.append(member)
            elif kind in CALLED:
                call = call_of(member)
                if call is None:
                    return False
                left.append(call[1])
            elif kind not in _PLAIN or member != member or (kind in _TEXTS and len(member) >= SIZE_MAX):
                return False
        if count > MEMBERS_MAX:
            return False
    return True


def is_interned(value: object) -> bool:
    """Tell whether Python keeps one object for all equal text: that of literals that look like names."""
    return type(value) is str and _interned_check()(value)


@loader("shared:shared_value")
def shared_value(value: Value, name: bytes) -> Value:
    """Return this process's object for a value that several components hold (called by payloads)."""
    found: Value = loading.current().share(value, name)
    return found


def _same(one: Value, other: Value) -> bool:
    if type(one) is not type(other):
        return False
    return bool(one == other) if kind_of(one) in _BY_VALUE else _literal(one) == _literal(other)


def _size(value: Value) -> int:
    if kind_of(value) in _TEXTS:
        return len(value)
    return sum(map(sys.getsizeof, value)) if kind_of(value) in _GROUPS else sys.getsizeof(value)


def _from_memo(place: int) -> bytes:
    if place <= _SHORT_MAX:
        return pickle.BINGET + bytes([place])
    return pickle.LONG_BINGET + _LENGTH.pack(place)


def _literal(value: Any, places: Mapping[int, int] = _NO_PLACES) -> bytes:
    """Return opcodes that push a value and put nothing into the memo; what is there is taken from it."""
    if kind_of(value) in _GROUPS:
        way = way_of(value) if type(value) is frozenset else None
        if way is not None:
            return _call(made, tuple(way), places)
        members = (
            _from_memo(places[id(member)]) if id(member) in places else _literal(member, places)
            for member in value
        )
        end = pickle.TUPLE if type(value) is tuple else pickle.FROZENSET
        return pickle.MARK + b"".join(members) + end
    if kind_of(value) in CALLED and (call := call_of(value)) is not None:
        return _call(*call, places)
    if not isinstance(value, (str, bytes)):
        return pickle.dumps(value, 2)[2:-1]
    text = isinstance(value, str)
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if len(data) <= _SHORT_MAX:
        return (pickle.SHORT_BINUNICODE if text else pickle.SHORT_BINBYTES) + bytes([len(data)]) + data
    return (pickle.BINUNICODE if text else pickle.BINBYTES) + _LENGTH.pack(len(data)) + data


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], places: Mapping[int, int]) -> bytes:
    found = _literal(function.__module__) + _literal(function.__qualname__) + pickle.STACK_GLOBAL
    return found + _literal(arguments, places) + pickle.REDUCE


_GLOBAL = (
    _literal(shared_value.__module__)
    + _literal(shared_value.__qualname__)
    + pickle.STACK_GLOBAL
    + pickle.MEMOIZE
    + pickle.POP
)


@functools.cache
def _interned_check() -> Callable[[str], bool]:
    """Return what tells whether a text is interned, without interning it."""
    asked = getattr(sys, "_is_interned", None)
    if asked is not None:
        found: Callable[[str], bool] = asked
        return found
    samples = [("".join(["a ", str(number)]), False) for number in range(3)]
    samples += [(sys.intern("".join(["an interned ", str(number)])), True) for number in range(3)]
    if sys.implementation.name == "cpython" and all(_state_says(text) is is_so for text, is_so in samples):
        return _state_says
    return lambda text: False


_STATE_AT = object.__basicsize__ + 2 * ctypes.sizeof(ctypes.c_size_t)
"""Where CPython up to 3.12 keeps a text's state: behind its length and its hash."""


def _state_says(text: str) -> bool:
    return bool(ctypes.c_uint32.from_address(id(text) + _STATE_AT).value & 3)


_IN_TABLES = 4
"""The references to a value that nobody else has: two tables, the loop and the call."""
