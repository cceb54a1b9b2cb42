"""Whether a listed call of a stranger's payload makes no more than its file brought: no bombs.

Pure. Law: an array is as long as its bytes; what is filled from something is filled from what is written out,
never from a range; a number is written as its digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from replkernel.loaders import MODULE as LOADERS
from replkernel.state.format.dump_graph import Node

UNMEASURED_BYTES_MAX = 2**26
"""An array whose bytes are among the opcodes, and long, is no longer than a head may be."""

_SIZED = re.compile(rb"[<>|=]?([biufcSUVmM])(\d{1,6})(?:\[[^\]]*\])?")
_RATIO = re.compile(rb"-?\d{1,4000}(?:/\d{1,4000})?")
_WRITTEN_OUT = frozenset({"list", "tuple", "set", "frozenset", "dict"})

Amount = Callable[[Sequence[Any], Sequence[int], int], bool]
"""Is given a call's arguments, the sizes of the payload's buffers, and the length of its stream."""


def _item_bytes(dtype: Any) -> int:
    """Return how long an element of a plain dtype is; raises ValueError where that is not told."""
    if isinstance(dtype, Node):
        dtype = dtype.parts[1].parts[0]  # type: ignore[union-attr]
    if dtype[1] == b"?":
        return 1
    found = _SIZED.fullmatch(dtype[1])
    if found is None:
        raise ValueError("no size")
    return int(found[2]) * (4 if found[1] == b"U" else 1)


def _count(shape: object) -> int:
    """Return how many elements a shape has; raises ValueError for what is none."""
    if not isinstance(shape, Node) or shape.kind != "tuple":
        raise ValueError("no shape")
    total = 1
    for part in shape.parts:
        if not isinstance(part, tuple) or part[0] != "i" or part[1] < 0:
            raise ValueError("no shape")
        total *= part[1]
    return total


def _as_long_as_its_bytes(arguments: Sequence[Any], sizes: Sequence[int], length: int) -> bool:
    data, dtype, shape = arguments[:3]
    claimed = _count(shape) * _item_bytes(dtype)
    if data[0] == "i":
        return bool(0 <= data[1] < len(sizes) and sizes[data[1]] == claimed)
    if data[0] != "y":
        return False
    return len(data[1]) == claimed if isinstance(data[1], bytes) else claimed <= UNMEASURED_BYTES_MAX


def _as_many_as_are_written(arguments: Sequence[Any], sizes: Sequence[int], length: int) -> bool:
    return _count(arguments[0]) <= length


def _of_what_is_written_out(arguments: Sequence[Any], sizes: Sequence[int], length: int) -> bool:
    return not arguments or (isinstance(arguments[0], Node) and arguments[0].kind in _WRITTEN_OUT)


def _of_bytes(arguments: Sequence[Any], sizes: Sequence[int], length: int) -> bool:
    return not arguments or (isinstance(arguments[0], tuple) and arguments[0][0] == "y")


def _of_digits(arguments: Sequence[Any], sizes: Sequence[int], length: int) -> bool:
    return all(
        isinstance(one, tuple)
        and (
            one[0] == "i" or (one[0] == "t" and isinstance(one[1], bytes) and bool(_RATIO.fullmatch(one[1])))
        )
        for one in arguments
    )


_AMOUNTS: dict[tuple[str, str], Amount] = {
    (LOADERS, "numpy:make_array"): _as_long_as_its_bytes,
    (LOADERS, "numpy:make_permuted"): _as_long_as_its_bytes,
    (LOADERS, "numpy:make_objects"): _as_many_as_are_written,
    ("builtins", "bytearray"): _of_bytes,
    ("builtins", "set"): _of_what_is_written_out,
    ("builtins", "frozenset"): _of_what_is_written_out,
    **{("collections", name): _of_what_is_written_out for name in ("OrderedDict", "Counter", "deque")},
    ("fractions", "Fraction"): _of_digits,
}


def is_bounded(
    function: tuple[str, str], arguments: Sequence[Any], sizes: Sequence[int], length: int
) -> bool:
    """Tell whether a call makes no more than its payload holds."""
    amount = _AMOUNTS.get(function)
    try:
        return amount is None or amount(arguments, sizes, length)
    except (ValueError, IndexError, TypeError, AttributeError):
        return False
