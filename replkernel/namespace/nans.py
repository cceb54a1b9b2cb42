"""Keeps ``numpy.nan`` and ``math.nan`` themselves: a NaN is found in a container by identity only.

The C pickler writes floats without asking anybody. Where the NaNs of a small stream are surely these,
because builtin containers hold all of them or because all are one and the same, the stream is made to name
them, by as many bytes.
Law: no NaN becomes another one in doubt; one that the user made keeps its bits, not its identity.
"""

from __future__ import annotations

import math
import pickle
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

STREAM_BYTES_MAX = 64 * 1024
"""The NaNs of longer streams are not looked for."""

NAN = pickle.BINFLOAT + struct.pack(">d", math.nan)
NUMPY_NAN, MATH_NAN = "numpy.nan", "math.nan"
_DONE = b"g" + NAN[1:]
"""Stands for a NaN that stays as it is, while the others are replaced."""

DEPTH_MAX = 100
_NOTHING = pickle.DUP + pickle.POP
_CONTAINERS = frozenset({list, tuple, set, frozenset})


def nan_of(token: str) -> float:
    """Return the NaN that a library holds, by its token."""
    library = sys.modules.get("numpy", math) if token == NUMPY_NAN else math
    found: float = vars(library).get("nan", math.nan)
    return found


def naming(place: int) -> bytes:
    """Return opcodes that push what an unpickler's memo has at a place, as long as a float's."""
    return pickle.LONG_BINGET + struct.pack("<I", place) + 2 * _NOTHING


def with_own_nans(
    stream: bytes, memo: Mapping[int, tuple[int, Any]], value: Any, tokens: tuple[str, ...]
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
    kind = type(value)
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
        kind = type(value)
        if kind in _CONTAINERS:
            yield from [item for item in value if type(item) is float]
        elif kind is dict:
            yield from [item for item in value if type(item) is float]
            yield from [item for item in value.values() if type(item) is float]
