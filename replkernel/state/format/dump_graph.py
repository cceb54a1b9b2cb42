"""Reads a dump as a graph of values without making any of them: an interpreter of our own pickle streams.

Pure: no user code, no import, no recursion; the graph takes a bounded multiple of the stream, large text and
bytes stand as digests. What a stream means is pickle's affair; what may differ and still be the same value
is `canonical`'s.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from replkernel.state.capture.dump import BufferDigests
from replkernel.state.format.old_names import name_now
from replkernel.state.format.shared_values import shared_value
from replkernel.state.format.stream import OUT_OF_BAND_BYTES, Head
from replkernel.state.seeds import SEED_MODULE, SEED_TOKENS

Atom: TypeAlias = tuple[Any, ...]
"""An immutable leaf: its kind in a letter, and its value."""

Value: TypeAlias = "Atom | Node"


class Node:
    """A value with parts. `effects` are what was done to it after it was made: (what, values…)."""

    __slots__ = ("effects", "kind", "parts")

    def __init__(self, kind: str, parts: list[Value]) -> None:
        self.kind = kind
        self.parts = parts
        self.effects: list[tuple[Any, ...]] = []


class Unreadable(ValueError):
    """A stream is not one of ours."""


class Buffers(Protocol):
    """The buffers beside a stream."""

    def digest(self, number: int) -> bytes:
        """Return the digest of a buffer's bytes."""

    def read(self, number: int) -> Any:
        """Return a buffer's bytes."""


class Source:
    """One dump to be read: its head, its stream without what is in buffers, and these."""

    def __init__(self, head: Head, stream: bytes | memoryview, buffers: Buffers) -> None:
        self.head = head
        self.stream = stream
        self.buffers = buffers


NONE: Atom = ("n",)
_CODES = {ord(op.code): op.name for op in pickletools.opcodes}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_SIZES = {
    "BINUNICODE": 4,
    "BINUNICODE8": 8,
    "SHORT_BINBYTES": 1,
    "BINBYTES": 4,
    "BINBYTES8": 8,
    "BYTEARRAY8": 8,
}
_INTEGERS = {"BININT": (4, True), "BININT2": (2, False)}
_EXTENSIONS = {"EXT1": 1, "EXT2": 2, "EXT4": 4}


def read_graph(source: Source) -> Value:
    """Return the value that a dump describes; raise Unreadable when it is not one of ours."""
    try:
        return Reader(source).run()
    except (IndexError, KeyError, struct.error, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


class Reader:
    """Interprets one stream."""

    def __init__(self, source: Source) -> None:
        self._data = bytes(source.stream)
        self._buffers = source.buffers
        self._cuts = list(source.head.cuts)
        self._native = list(source.head.native)
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Value] = [("g", SEED_MODULE, token) for token in SEED_TOKENS]
        self._fresh: Any = None
        """The node of a call that nothing refers to yet."""

    def run(self) -> Value:
        """Interpret the stream to its end."""
        steps = self._table()
        data, stack, memo = self._data, self._stack, self._memo
        at, end = 0, len(self._data)
        while at < end:
            code = data[at]
            at += 1
            if code == _MEMOIZE:
                memo.append(stack[-1])
                self._fresh = None
            elif code == _BINGET:
                stack.append(memo[data[at]])
                at += 1
            elif code == _SHORT_TEXT:
                start = at + 1
                at = start + data[at]
                stack.append(("t", data[start:at]))
            elif code == _BYTE:
                stack.append(("i", data[at]))
                at += 1
            elif code == _STOP:
                return stack.pop()  # type: ignore[no-any-return]
            else:
                self._at = at
                steps[code]()
                at = self._at
        raise Unreadable("the stream has no end")

    def _table(self) -> dict[int, Callable[[], None]]:
        table: dict[int, Callable[[], None]] = {}
        for code, name in _CODES.items():
            step = self._step_for(name)
            if step is not None:
                table[code] = step
        return table

    def _step_for(self, name: str) -> Callable[[], None] | None:
        if name in _SIZES:
            letter = "t" if "UNICODE" in name else "y" if "BINBYTES" in name else "array"
            return lambda: self._text(letter, _SIZES[name])
        if name in _INTEGERS:
            return lambda: self._integer(*_INTEGERS[name])
        if name in _TUPLES:
            return lambda: self._tuple(_TUPLES[name])
        if name in _EXTENSIONS:
            return lambda: self._stack.append(("extension", self._number(_EXTENSIONS[name])))
        found: Callable[[], None] | None = getattr(self, f"_do_{name.lower()}", None)
        return found

    # -- reading bytes --

    def _take(self, count: int) -> bytes:
        at = self._at
        if at + count > len(self._data):
            raise Unreadable("the stream is cut short")
        self._at = at + count
        return self._data[at : at + count]

    def _number(self, count: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(count), "little", signed=signed)

    def _text(self, letter: str, width: int) -> None:
        size = self._number(width)
        if self._cuts and self._cuts[0][0] == self._at and size >= OUT_OF_BAND_BYTES:
            value: Any = ("digest", self._buffers.digest(self._cuts.pop(0)[1]))
        else:
            value = self._take(size)
            if size >= OUT_OF_BAND_BYTES:
                value = ("digest", BufferDigests().of(memoryview(value), None))
        self._stack.append(Node("bytearray", [("y", value)]) if letter == "array" else (letter, value))

    def _integer(self, width: int, signed: bool) -> None:
        self._stack.append(("i", self._number(width, signed=signed)))

    # -- the stack --

    def _marked(self) -> list[Value]:
        at = self._marks.pop()
        items = self._stack[at:]
        del self._stack[at:]
        return items

    def _tuple(self, count: int) -> None:
        items = self._stack[-count:]
        del self._stack[-count:]
        self._stack.append(Node("tuple", items))

    def _call(self, kind: str, count: int) -> None:
        parts = self._stack[-count:]
        del self._stack[-count:]
        node = Node(kind, parts)
        self._fresh = node
        self._stack.append(node)

    def _do_proto(self) -> None:
        self._take(1)

    def _do_frame(self) -> None:
        self._take(8)

    def _do_none(self) -> None:
        self._stack.append(NONE)

    def _do_newtrue(self) -> None:
        self._stack.append(("b", True))

    def _do_newfalse(self) -> None:
        self._stack.append(("b", False))

    def _do_long1(self) -> None:
        self._stack.append(("i", self._number(self._number(1), signed=True)))

    def _do_long4(self) -> None:
        self._stack.append(("i", self._number(self._number(4), signed=True)))

    def _do_binfloat(self) -> None:
        self._stack.append(("f", self._take(8)))

    def _do_empty_list(self) -> None:
        self._stack.append(Node("list", []))

    def _do_empty_dict(self) -> None:
        self._stack.append(Node("dict", []))

    def _do_empty_set(self) -> None:
        self._stack.append(Node("set", []))

    def _do_empty_tuple(self) -> None:
        self._stack.append(Node("tuple", []))

    def _do_mark(self) -> None:
        self._marks.append(len(self._stack))

    def _do_tuple(self) -> None:
        items = self._marked()
        self._stack.append(Node("tuple", items))

    def _do_frozenset(self) -> None:
        items = self._marked()
        self._stack.append(Node("frozenset", items))

    def _do_pop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            raise Unreadable("a mark is popped")  # pickle would take that one, and not what is below it.
        gone = self._stack.pop()
        if gone is not self._fresh or gone.kind != "call" or self._was_made_within(gone):
            return
        # A call for what it does to its first argument: how reductions with a setter of their own end.
        function, arguments = gone.parts
        target = arguments.parts[0] if arguments.parts else None
        if isinstance(target, Node):
            target.effects.append(("call", function, Node("tuple", arguments.parts[1:])))

    def _was_made_within(self, call: Node) -> bool:
        """Tell whether what a call made is thrown away, since its own arguments had already made it.

        The next step takes that from the memo then; what a setter returns is never kept there.
        """
        code = self._data[self._at]
        if code == _BINGET:
            kept = self._memo[self._data[self._at + 1]]
        elif code == _LONG_BINGET:
            kept = self._memo[int.from_bytes(self._data[self._at + 1 : self._at + 5], "little")]
        else:
            return False
        return isinstance(kept, Node) and kept.kind == "call" and kept.parts[0] == call.parts[0]

    def _do_pop_mark(self) -> None:
        self._marked()

    def _do_dup(self) -> None:
        self._stack.append(self._stack[-1])

    # -- the memo --

    def _do_long_binget(self) -> None:
        self._stack.append(self._memo[self._number(4)])

    def _do_binpersid(self) -> None:
        """Take what stands for a value as the value."""

    # -- what fills --

    def _do_append(self) -> None:
        item = self._stack.pop()
        self._append([item])

    def _do_appends(self) -> None:
        items = self._marked()
        self._append(items)

    def _append(self, items: Sequence[Value]) -> None:
        target = self._stack[-1]
        if target.kind == "list":
            target.parts.extend(items)
        else:
            target.effects.extend(("append", item) for item in items)

    def _do_setitem(self) -> None:
        items = self._stack[-2:]
        del self._stack[-2:]
        self._set(items)

    def _do_setitems(self) -> None:
        items = self._marked()
        self._set(items)

    def _set(self, items: Sequence[Value]) -> None:
        target = self._stack[-1]
        if target.kind == "dict":
            target.parts.extend(items)
        else:
            target.effects.extend(("set", *pair) for pair in zip(items[::2], items[1::2], strict=True))

    def _do_additems(self) -> None:
        items = self._marked()
        self._stack[-1].parts.extend(items)

    def _do_build(self) -> None:
        state = self._stack.pop()
        self._stack[-1].effects.append(("state", state))

    # -- calls and names --

    def _do_stack_global(self) -> None:
        (_, module), (_, name) = self._stack[-2:]
        del self._stack[-2:]
        self._stack.append(("g", *name_now(module.decode(), name.decode())))

    def _do_reduce(self) -> None:
        if self._stack[-2] == _SHARED:
            arguments = self._stack.pop()
            self._stack[-1] = arguments.parts[0]
            self._fresh = None
            return
        self._call("call", 2)

    def _do_newobj(self) -> None:
        self._call("new", 2)

    def _do_newobj_ex(self) -> None:
        self._call("new with keywords", 3)

    def _do_next_buffer(self) -> None:
        self._stack.append(("buffer", self._buffers.digest(self._native.pop(0))))

    def _do_readonly_buffer(self) -> None:
        self._stack[-1] = ("read-only", *self._stack[-1])


_SHARED: Atom = ("g", shared_value.__module__, shared_value.__qualname__)
"""What gives a value that other components hold too: it stands for the value."""

_STOP, _MEMOIZE, _BINGET, _LONG_BINGET, _BYTE, _SHORT_TEXT = b".\x94hjK\x8c"
"""The opcodes that `run` deals with itself: half of a stream is made of them."""
