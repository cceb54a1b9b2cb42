"""What a payload holds, told by its own framing: type and shape of each name. Nothing is unpickled.

Pure. Law: what cannot be told is left empty; a hostile payload costs a bounded time and runs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from replkernel.state.format.dump_graph import Node, Source, Unreadable, Value, read_graph
from replkernel.state.format.stream import split_head

HEAD_BYTES_MAX = 4 * 2**20
"""Longer heads are not read for their outline."""
DIMENSIONS_MAX = 32
TEXT_MAX = 120
Seen = TypeVar("Seen")

_LEAVES = {"t": "str", "y": "bytes", "i": "int", "f": "float", "b": "bool", "n": "NoneType"}
_CONTAINERS = ("list", "tuple", "set", "frozenset", "dict", "bytearray")
_ARRAYS = {
    "numpy:make_array": ("numpy.ndarray", 2),
    "numpy:make_permuted": ("numpy.ndarray", 2),
    "numpy:make_view": ("numpy.ndarray", 2),
    "numpy:make_objects": ("numpy.ndarray", 0),
    "torch:make_tensor": ("torch.Tensor", 5),
    "torch:make_view": ("torch.Tensor", 2),
}
_NAMED = {
    "functions:make_function": "function",
    "modules:import_module": "module",
    "lost:lost": "(left where it was)",
}


class Outline(msgspec.Struct, frozen=True):
    """A value's type, as its class is called, and its shape or length; empty where it cannot be told."""

    type: str = ""
    shape: tuple[int, ...] = ()


class NoBuffers:
    """The buffers of a stream that nobody looks at."""

    def digest(self, number: int) -> bytes:
        """Return nothing."""
        return b""

    def read(self, number: int) -> bytes:
        """Return nothing."""
        return b""


def outlines(head: bytes) -> dict[str, Outline]:
    """Return the outline of each variable that a payload's head binds; what cannot be read has none."""
    return values_in(head, outline)


def values_in(head: bytes, look: Callable[[Value], Seen]) -> dict[str, Seen]:
    """Return what a look at each variable of a payload's head tells; nothing where that cannot be read."""
    if len(head) > HEAD_BYTES_MAX:
        return {}
    try:
        told, stream = split_head(head)
        value = read_graph(Source(told, stream, NoBuffers()))
        if told.single:
            return {told.roots[0]: look(value)}
        names = _parts(value)[2]
        pairs = zip(_parts(names)[::2], _parts(names)[1::2], strict=True)
        return {_text(name): look(one) for name, one in pairs}
    except (
        Unreadable,
        struct.error,
        ValueError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
    ):
        return {}


def outline(value: Value) -> Outline:
    """Return a value's outline."""
    if isinstance(value, tuple):
        name = _LEAVES.get(str(value[0]), "")
        return Outline(
            name, (len(value[1]),) if name in ("str", "bytes") and isinstance(value[1], bytes) else ()
        )
    if value.kind in _CONTAINERS:
        count = len(value.parts) // 2 if value.kind == "dict" else len(value.parts)
        return Outline(value.kind, () if value.kind == "bytearray" else (count,))
    if value.kind not in ("call", "new", "new with keywords"):
        return Outline()
    module, name = _global(value.parts[0])
    arguments = _parts(value.parts[1])
    if name in _ARRAYS:
        kind, place = _ARRAYS[name]
        return Outline(kind, _shape(arguments[place]))
    if name in _NAMED:
        return Outline(_NAMED[name])
    if name == "instances:make_plain":
        module, name = _global(arguments[0])
        return Outline(_qualified(module, name), _frame_shape(value))
    return Outline("" if ":" in name else _qualified(module, name))


def _frame_shape(frame: Node) -> tuple[int, ...]:
    """Return the rows and columns of a frame or series of pandas, whose manager says its axes."""
    for effect in frame.effects:
        for part in effect[2:]:
            found = _find(part, "_mgr")
            if (
                isinstance(found, Node)
                and found.kind == "call"
                and _global(found.parts[0])[1] == "pandas:make_manager"
            ):
                axes = _parts(_parts(found.parts[1])[2])
                lengths = [_length(axis) for axis in axes]
                return tuple(reversed(lengths)) if all(length >= 0 for length in lengths) else ()
    return ()


def _find(value: object, key: str) -> object:
    """Return what a dictionary within a few tuples has for a key."""
    waiting, looked = [value], 0
    while waiting and looked < DIMENSIONS_MAX:
        looked += 1
        one = waiting.pop()
        if not isinstance(one, Node):
            continue
        if one.kind == "dict":
            for name, item in zip(one.parts[::2], one.parts[1::2], strict=False):
                if name == ("t", key.encode()):
                    return item
        elif one.kind in ("tuple", "list"):
            waiting.extend(one.parts)
    return None


def _length(index: object) -> int:
    """Return how many labels an index of pandas has; -1 where that cannot be told."""
    told = _parts(_parts(index.parts[1])[1]) if isinstance(index, Node) and index.kind == "call" else []
    labels = dict(zip(map(_text, told[::2]), told[1::2], strict=False))
    if "stop" in labels:
        start, stop, step = (labels[name][1] for name in ("start", "stop", "step"))
        return len(range(start, stop, step))
    data = labels.get("data")
    if isinstance(data, Node) and data.kind == "new":
        arrow = _find(data.effects[0][1], "_pa_array") if data.effects else None
        return int(_parts(_parts(_parts(arrow)[1])[0])[1][1])
    if not isinstance(data, Node):
        return -1
    states = [part for effect in data.effects if isinstance(effect[-1], Node) for part in effect[-1].parts]
    arrays = [data, *(part for part in states if isinstance(part, Node))]
    return next((shape[0] for one in arrays if (shape := outline(one).shape)), -1)


def _parts(value: object) -> list[Any]:
    if not isinstance(value, Node):
        raise ValueError("no container")
    return value.parts


def _global(value: object) -> tuple[str, str]:
    if isinstance(value, tuple) and value[0] == "g":
        return str(value[1]), str(value[2])
    return "", ""


def _qualified(module: str, name: str) -> str:
    shown = name if module in ("builtins", "__main__", "") else f"{module}.{name}"
    return shown[:TEXT_MAX] if shown.isprintable() else ""


def _text(value: object) -> str:
    return (
        value[1].decode()
        if isinstance(value, tuple) and value[0] == "t" and isinstance(value[1], bytes)
        else ""
    )


def _shape(value: object) -> tuple[int, ...]:
    parts = _parts(value)[:DIMENSIONS_MAX]
    return tuple(int(part[1]) for part in parts if part[0] == "i")
