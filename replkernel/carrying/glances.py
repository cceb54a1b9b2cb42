"""What variables hold, in a few letters: told from their captured bytes, for whoever compares two points.

Pure. Law: nothing is unpickled and no code of the user runs; what is long, or needs more than its framing
to be told, is given by type and shape; a glance costs a bounded time.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from replkernel.carrying.outline import Outline, outline, values_in
from replkernel.protocol.timeline import Difference
from replkernel.records import ComponentRecord
from replkernel.replication.components import TableState
from replkernel.state.format.dump_graph import Node, Value

CHARS_MAX = 40
ITEMS_MAX = 4
DEPTH_MAX = 2
NAMES_MAX = 40
"""So many variables are glanced at; of others only the sizes are told."""
HEAD_BYTES_MAX = 8 * 1024

_BRACKETS = {"list": "[]", "tuple": "()", "set": "{}", "frozenset": "{}", "dict": "{}"}
_NUMBERS = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u1": "B", "b1": "?"}


def with_glances(
    found: tuple[Difference, ...], before: TableState | None, after: TableState | None
) -> tuple[Difference, ...]:
    """Return differences with what the variables hold at two points, as far as that is short."""
    names = {one.name for one in found[:NAMES_MAX]}
    was, now = (_glances_of(table, names) for table in (before, after))
    return tuple(
        msgspec.structs.replace(one, was=was.get(one.name, ""), now=now.get(one.name, "")) for one in found
    )


def _glances_of(table: TableState | None, names: set[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    for record in () if table is None else table.components.values():
        if not names.isdisjoint(record.names):
            told.update(glances(record))
    return told


def glances(record: ComponentRecord) -> dict[str, str]:
    """Return a glance at each variable of a component."""
    head = record.payload.head or b""
    if len(head) > HEAD_BYTES_MAX:
        return {}
    return values_in(head, lambda value: _cut(_shown(value, DEPTH_MAX)))


def _cut(text: str) -> str:
    clean = "".join(letter if letter.isprintable() else "�" for letter in text)
    return clean if len(clean) <= CHARS_MAX else f"{clean[: CHARS_MAX - 1]}…"


def _shown(value: Value, depth: int) -> str:
    if isinstance(value, tuple):
        return _atom(value)
    brackets = _BRACKETS.get(value.kind)
    if brackets is not None and depth:
        return _container(value, brackets, depth)
    told = outline(value)
    return _typed(told) + _elements(value, told)


def _atom(value: tuple[Any, ...]) -> str:
    kind, held = value[0], value[-1]
    if kind in ("t", "y") and isinstance(held, bytes):
        start = held[: 4 * CHARS_MAX]
        return repr(start.decode(errors="replace") if kind == "t" else start)
    if kind == "f":
        return repr(struct.unpack(">d", held)[0])
    if kind == "i":
        return repr(held) if held.bit_length() < 4 * CHARS_MAX else "int"
    if kind in ("b", "n"):
        return repr(held) if kind == "b" else "None"
    return _typed(outline(value))


def _container(value: Node, brackets: str, depth: int) -> str:
    step = 2 if value.kind == "dict" else 1
    parts = value.parts[: ITEMS_MAX * step]
    shown = [_shown(part, depth - 1) for part in parts]
    if step == 2:
        shown = [f"{key}: {item}" for key, item in zip(shown[::2], shown[1::2], strict=False)]
    if len(value.parts) > len(parts):
        shown.append("…")
    text = ", ".join(shown) + ("," if value.kind == "tuple" and len(value.parts) == 1 else "")
    if not value.parts and value.kind.endswith("set"):
        return f"{value.kind}()"
    around = brackets[0] + text + brackets[1]
    return f"frozenset({around})" if value.kind == "frozenset" else around


def _typed(told: Outline) -> str:
    shape = "×".join(map(str, told.shape))
    return f"{told.type} {shape}".strip()


def _elements(value: Node, told: Outline) -> str:
    """Return the first elements of a small array of numbers."""
    if told.type != "numpy.ndarray" or value.kind != "call":
        return ""
    arguments = value.parts[1]
    data, dtype = arguments.parts[:2] if isinstance(arguments, Node) else (("n",), ("n",))
    text = dtype[1].decode().lstrip("<=|") if isinstance(dtype, tuple) and dtype[0] == "t" else ""
    letter = _NUMBERS.get(text)
    if letter is None or not isinstance(data, tuple) or data[0] != "y" or not isinstance(data[1], bytes):
        return ""
    count = len(data[1]) // struct.calcsize(letter)
    first = struct.unpack_from(f"<{min(count, ITEMS_MAX)}{letter}", data[1])
    more = ", …" if count > ITEMS_MAX else ""
    return f" [{', '.join(f'{one:.4g}' for one in first)}{more}]"
