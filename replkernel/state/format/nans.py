"""Keeps ``numpy.nan`` and ``math.nan`` themselves: a NaN is found in a container by identity only.

The C pickler writes floats without asking anybody. Where the NaNs of a small stream are surely these,
because builtin containers hold all of them or because all are one and the same, the stream is made to name
them, by as many bytes. A NaN that the user made and several places hold gets a name of its own, which it has
on every replica (`capture/rechecks` has its unit dumped so).
Law: no NaN becomes another one in doubt.
"""

from __future__ import annotations

import math
import pickle
import secrets
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from replkernel.loaders import loader
from replkernel.state.python.kinds import kind_of
from replkernel.state.seeds import MATH_NAN, NUMPY_NAN, nan_of

STREAM_BYTES_MAX = 64 * 1024
"""The NaNs of longer streams are not looked for."""

NAN = pickle.BINFLOAT + struct.pack(">d", math.nan)
_DONE = b"g" + NAN[1:]
"""Stands for a NaN that stays as it is, while the others are replaced."""

NAMED_MAX = 1_000
"""So many NaNs of the notebook's have a name at a time."""

DEPTH_MAX = 100
_NOTHING = pickle.DUP + pickle.POP
_CONTAINERS = frozenset({list, tuple, set, frozenset})


def naming(place: int) -> bytes:
    """Return opcodes that push what an unpickler's memo has at a place, as long as a float's."""
    return pickle.LONG_BINGET + struct.pack("<I", place) + 2 * _NOTHING


def with_own_nans(
    stream: bytes, memo: Mapping[int, tuple[int, Any]], value: object, tokens: tuple[str, ...]
) -> bytes:
    """Return the stream with the NaNs of libraries by name; unchanged where it is not sure which they are.

    `memo` has the containers that the stream was made of, `value` is the outermost object.
    """
    count = stream.count(NAN)
    if not count or len(stream) > STREAM_BYTES_MAX or _DONE in stream:
        return stream
    names = {id(nan_of(token)): naming(tokens.index(token)) for token in (NUMPY_NAN, MATH_NAN)}
    in_order = list(_nans_below(value, set()))
    if len(in_order) == count:
        for nan in in_order:
            stream = stream.replace(NAN, names.get(id(nan), _DONE), 1)
        return stream.replace(_DONE, NAN)
    held = list(_floats(value for place, value in memo.values() if place >= len(tokens)))
    found = {id(item) for item in held if item != item}
    if len(found) == 1 and found <= names.keys() and sum(1 for item in held if id(item) in found) == count:
        return stream.replace(NAN, names[found.pop()])
    return stream


def _nans_below(value: Any, seen: set[int], depth: int = 0) -> Iterator[float]:
    """Yield the NaNs in builtin containers, in the order in which a pickler comes to them."""
    kind = kind_of(value)
    if kind is float:
        if value != value:
            yield value
        return
    if (kind not in _CONTAINERS and kind is not dict) or id(value) in seen or depth > DEPTH_MAX:
        return
    seen.add(id(value))
    items = [part for pair in value.items() for part in pair] if kind is dict else value
    for item in items:
        yield from _nans_below(item, seen, depth + 1)


def needs_numpy(stream: memoryview, place: int) -> bool:
    """Tell whether a stream names numpy's NaN, which an unpickler's memo has at a place."""
    return len(stream) <= STREAM_BYTES_MAX and naming(place) in bytes(stream)


def _floats(containers: Iterable[Any]) -> Iterable[float]:
    for value in containers:
        kind = kind_of(value)
        if kind in _CONTAINERS:
            yield from [item for item in value if type(item) is float]
        elif kind is dict:
            yield from [item for item in value if type(item) is float]
            yield from [item for item in value.values() if type(item) is float]


_names: dict[int, tuple[float, int]] = {}
"""The NaNs of the notebook's that have a name, by id, and the names."""
_named: dict[int, float] = {}


def _outside(count: int, nan: float) -> bool:
    return sys.getrefcount(nan) > count + _ITS_LOOKERS


def _occurrences(containers: Iterable[Any]) -> dict[int, tuple[int, float]]:
    found: dict[int, tuple[int, float]] = {}
    for item in _floats(containers):
        if item != item:
            found[id(item)] = found.get(id(item), (0, item))[0] + 1, item
    return found


def _lookers() -> int:
    """Return how many references a NaN has beside those of its containers when `_outside` looks at it."""
    ((_, nan),) = _occurrences([[float("nan")]]).values()
    return sys.getrefcount(nan) - 1 + 2


_ITS_LOOKERS = _lookers()


def shared_nans(containers: Iterable[Any], roots: Mapping[str, Any]) -> dict[int, int]:
    """Return the names of the NaNs that have one, or that more than one place holds, by id.

    `containers` are those of a unit, `roots` its variables.
    """
    librarys = {id(nan_of(NUMPY_NAN)), id(nan_of(MATH_NAN))}
    found = _occurrences(containers)
    shared = {key for key, (count, nan) in found.items() if count > 1 or _outside(count, nan)}
    for value in roots.values():
        if type(value) is float and value != value:
            found[id(value)] = 1, value
            shared.add(id(value))
    named = {}
    for key, (_, nan) in found.items():
        if key in librarys or (key not in _names and key not in shared):
            continue
        name = _name_of(nan)
        if name is not None:
            named[key] = name
    return named


def _name_of(nan: float) -> int | None:
    if id(nan) in _names:
        return _names[id(nan)][1]
    return _enter(nan, secrets.randbits(48))


def _enter(nan: float, name: int) -> int | None:
    if len(_names) >= NAMED_MAX:
        _forget()
    if len(_names) >= NAMED_MAX:
        return None
    _names[id(nan)] = nan, name
    _named[name] = nan
    return name


def _forget() -> None:
    """Forget the NaNs that only the tables here hold."""
    for key, (nan, name) in list(_names.items()):
        if sys.getrefcount(nan) <= _IN_TABLES:
            del _names[key], _named[name]


_IN_TABLES = 5
"""The references to a NaN that nobody else has: two tables, the list of them, the loop and the call."""


@loader("nan:own_nan")
def own_nan(name: int) -> float:
    """Return this process's NaN of a name (called by payloads)."""
    if name not in _named:
        nan = float("nan")
        if _enter(nan, name) is None:
            return nan
    return _named[name]
