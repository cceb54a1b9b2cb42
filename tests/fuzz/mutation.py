"""Makes another input of one: the bytes of a piece are changed, or what they mean as msgpack or JSON is.

libFuzzer knows bytes alone, and seldom makes a message of another that is still one. Law: the same dice make
the same input; there is always an input.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import msgspec

from tests.fuzz.pieces import cut, joined

NOT_TEXT = "\x00not text\x00"
NESTED = "\x00nested\x00"
"""Stand for what no encoder writes: text that is not UTF-8, and lists in lists in lists."""
DEPTH = 3000

HOSTILE: tuple[Any, ...] = (
    NOT_TEXT,
    NESTED,
    None,
    True,
    "",
    "²",
    "\u0661",
    "../..",
    "\x00",
    "\n",
    "\u202e",
    "x" * 300,
    "x" * 5000,
    "1e999",
    "9" * 5000,
    b"",
    b"\xff" * 9,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    10**30,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    [],
    {},
    {"type": "x"},
)
BYTES = (
    b"\x00",
    b"\xff",
    b"\xc1",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"[" * 64,
    b"\x91" * 64,
    b"\xc2\xb2",
)

TEXTS = [value for value in HOSTILE if isinstance(value, str) and value not in (NOT_TEXT, NESTED)]
_WORD = re.compile(rb"[A-Za-z0-9]+")

Mutate = Callable[[bytes, random.Random], bytes]


def mutated(data: bytes, size_max: int, dice: random.Random, mutate: Mutate | None = None) -> bytes:
    """Return another input of `size_max` bytes at most; `mutate` changes the bytes of a piece."""
    number, pieces = cut(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        what = dice.random()
        if what < 0.04:
            number = dice.randrange(256)
        elif what < 0.12 or not pieces:
            pieces = _other_pieces(pieces, dice)
        else:
            at = dice.randrange(len(pieces))
            change = _meaning if what < 0.62 else (mutate or changed_bytes)
            pieces[at] = change(pieces[at], dice)
    return joined(number, *pieces)[:size_max]


def _other_pieces(pieces: list[bytes], dice: random.Random) -> list[bytes]:
    """Drop a piece, say one again, have two change places, or add one."""
    if not pieces:
        return [dice.choice(BYTES)]
    at, other = dice.randrange(len(pieces)), dice.randrange(len(pieces))
    match dice.randrange(4):
        case 0:
            return pieces[:at] + pieces[at + 1 :]
        case 1:
            return [*pieces[:at], pieces[other], *pieces[at:]]
        case 2:
            pieces[at], pieces[other] = pieces[other], pieces[at]
            return pieces
    return [*pieces, dice.choice(BYTES)]


def changed_bytes(data: bytes, dice: random.Random) -> bytes:
    """Return other bytes: some flipped, left out, said again, put in or cut off."""
    at = dice.randrange(len(data) + 1)
    some = at + dice.randrange(1, 9)
    match dice.randrange(6):
        case 0:
            return (
                data[:at]
                + bytes(byte ^ (1 << dice.randrange(8)) for byte in data[at : at + 1])
                + data[at + 1 :]
            )
        case 1:
            return data[:at] + data[some:]
        case 2:
            return data[:some] + data[at:]
        case 3:
            return data[:at] + dice.choice(BYTES) + data[at:]
        case 4:
            return data[:at]
    return data[:at] + dice.randbytes(some - at) + data[some:]


def _meaning(data: bytes, dice: random.Random) -> bytes:
    """Return what is encoded in `data` with another value in one place; other bytes where nothing is."""
    head = b""
    for mark in (b"rk1:", b"\x02", b"\xc1"):
        if data.startswith(mark):
            head, data = mark, data[len(mark) :]
            break
    try:
        return head + _as_msgpack(_other(msgspec.msgpack.decode(data), dice))
    except (ValueError, RecursionError, OverflowError, TypeError):
        pass
    try:
        return head + _as_json(_other(json.loads(data), dice))
    except (ValueError, RecursionError, TypeError):
        return head + _other_text(data, dice)


def _other_text(data: bytes, dice: random.Random) -> bytes:
    """Return text in which a word, a number or all of it is a hostile one; other bytes as often."""
    hostile = dice.choice(TEXTS).encode()
    words = [*_WORD.finditer(data)]
    match dice.randrange(4):
        case 0:
            return hostile
        case 1 if words:
            word = dice.choice(words)
            return data[: word.start()] + hostile + data[word.end() :]
    return changed_bytes(data, dice)


def _other(value: Any, dice: random.Random) -> Any:
    """Return `value` with a hostile one somewhere in it."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice([*value])
        match dice.randrange(8):
            case 0:
                return {name: value[name] for name in value if name != key}
            case 1:
                return value | {dice.choice(("x", NOT_TEXT, "type")): dice.choice(HOSTILE)}
        return value | {key: _other(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.9:
        at = dice.randrange(len(value))
        match dice.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value[:at] + [value[at]] * dice.choice((2, 3, 100)) + value[at + 1 :]
        return [*value[:at], _other(value[at], dice), *value[at + 1 :]]
    if isinstance(value, str | bytes) and value and dice.random() < 0.5:
        text = value.encode() if isinstance(value, str) else value
        other = changed_bytes(text, dice)
        return other.decode(errors="replace") if isinstance(value, str) else other
    if isinstance(value, int) and dice.random() < 0.3:
        return value + dice.choice((-1, 1, 2**32))
    return dice.choice(HOSTILE)


def _as_msgpack(value: Any) -> bytes:
    data = msgspec.msgpack.encode(value)
    for stands_for, written in ((NOT_TEXT, b"\xa2\xff\xfe"), (NESTED, b"\x91" * DEPTH + b"\xc0")):
        data = data.replace(msgspec.msgpack.encode(stands_for), written)
    return data


def _as_json(value: Any) -> bytes:
    data = json.dumps(value, default=repr).encode()
    for stands_for, written in ((NOT_TEXT, b'"\xff\xfe"'), (NESTED, b"[" * DEPTH + b"]" * DEPTH)):
        data = data.replace(json.dumps(stands_for).encode(), written)
    return data
