"""One unit as dumped: its stream and buffers, its fingerprint, and what the survey must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from replkernel.state.capture.fingerprint import BufferDigests
from replkernel.state.capture.memo_table import MemoTable
from replkernel.state.format.stream import FORMAT_VERSION, Head
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.tombstone import Loss


class Mode(msgspec.Struct, frozen=True, array_like=True):
    """How a unit is dumped: replacing what fails, and on the large stack."""

    careful: bool = False
    deep: bool = False


FAST = Mode()


class Identity(int):
    """An identity that is no object's id, as a storage's, where such are compared across units."""

    __slots__ = ()


class Dump(msgspec.Struct):
    """One unit. `memo` maps the ids of its objects to them and keeps them alive until dropped.

    A large unit has no copy of its memo but the `table` of the pickler that dumped it and nothing else.
    `ranges` are the addresses of its buffers; `links` are objects (or an `Identity`) that stuck objects hold;
    `unlinked` are ids that join nobody; `classes` are the notebook's classes that it refers to;
    `codes` are the code objects of its functions, None for a builtin that may reach every name;
    `keys` are the buffers' (address, bytes), as far as they have one;
    `seconds` is what the dump took; `gpus` is on how many GPUs its tensors lie.
    """

    roots: tuple[str, ...]
    single: bool
    mode: Mode
    parts: list[bytes]
    fingerprint: bytes
    memo: dict[int, tuple[int, Any]]
    table: MemoTable | None = None
    cuts: Sequence[tuple[int, int]] = ()
    digests: Sequence[bytes] = ()
    buffers: Sequence[Any] = ()
    keys: Sequence[tuple[int, int] | None] = ()
    native: Sequence[int] = ()
    losses: Sequence[Loss] = ()
    classes: AbstractSet[str] = frozenset()
    modules: AbstractSet[str] = frozenset()
    ranges: Sequence[tuple[int, int]] = ()
    links: Sequence[Any] = ()
    unlinked: AbstractSet[int] = frozenset()
    own_classes: tuple[str, ...] = ()
    codes: Sequence[Any] = ()
    seconds: float = 0.0
    gpus: int = 0

    def objects(self) -> int:
        """Return how many objects the unit has."""
        return len(self.memo) if self.table is None else len(self.table)

    def size(self) -> int:
        """Return how many bytes the unit has in its stream and its buffers."""
        return sum(len(part) for part in self.parts) + sum(len(buffer) for buffer in self.buffers)

    def head(self) -> Head:
        """Return the head that goes in front of the stream."""
        return Head(FORMAT_VERSION, self.roots, self.single, tuple(self.cuts), tuple(self.native))


def hash_buffers(dump: Dump, digests: BufferDigests) -> None:
    """Add to a dump's fingerprint, which is that of its stream, those of its buffers."""
    dump.digests = [digests.of(*pair) for pair in zip(dump.buffers, dump.keys, strict=True)]
    dump.fingerprint += b"".join(dump.digests)


def roots_of(dump: Dump) -> tuple[str, ...]:
    """Return the roots of a unit: its names, then its classes."""
    if not dump.own_classes:
        return dump.roots
    return (*dump.roots, *(ROOT_PREFIX + class_id for class_id in dump.own_classes))
