"""Plain values: what a process part may put on the wire, and their one byte form.

Law: equal values give equal bytes (mappings are ordered by key), and reading them runs no code.
"""

from __future__ import annotations

from typing import Any

import msgspec

DEPTH_MAX = 8
ITEMS_MAX = 100_000

_SCALARS = frozenset(map(id, (type(None), bool, float, str, bytes)))
"""By identity: comparing a class may run code of its metaclass."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder()


def is_plain(value: object, depth: int = DEPTH_MAX) -> bool:
    """Tell whether `value` is made of None, booleans, numbers, text, bytes, and lists or mappings of such.

    Only exact types count: a subclass may carry more than its value.
    """
    kind = type(value)
    if id(kind) in _SCALARS:
        return True
    if kind is int:
        return -(2**63) <= value < 2**64  # type: ignore[operator]
    if depth == 0:
        return False
    if kind is list or kind is tuple:
        return len(value) <= ITEMS_MAX and all(is_plain(item, depth - 1) for item in value)  # type: ignore[arg-type, attr-defined]
    if kind is dict:
        items = value.items()  # type: ignore[attr-defined]
        return all(type(key) is str and is_plain(item, depth - 1) for key, item in items)
    return False


def encode_plain(value: object) -> bytes:
    """Return the bytes of a plain value; tuples come back as lists."""
    return _encoder.encode(value)


def decode_plain(data: bytes) -> Any:
    """Return the value that `encode_plain` wrote; raises msgspec.DecodeError for anything else."""
    return _decoder.decode(data)
