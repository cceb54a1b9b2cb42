"""What of a unit has the memory that storages look at, where no array and no variable has it.

`torch.from_numpy(n[1:])` has a storage of its own, which looks at a part of what another one has, and
`torch.frombuffer` looks at bytes that the unit may hold anywhere.
Law: such memory travels once: as these bytes, as the storage that has all of it, or as a stretch of bytes.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from replkernel.state.capture.memory_ranges import foreign_in
from replkernel.state.capture.outcomes import Overlap
from replkernel.state.libraries.numpy.bare_arrays import Memory
from replkernel.state.python.views import address_of

if TYPE_CHECKING:
    import torch

    from replkernel.state.capture.contexts import UnitContext

_Met: TypeAlias = tuple[int, int, Any]
"""Where memory begins and ends, and the node of what has it."""


class Holder:
    """What has a stretch of memory that storages look at: the node of one of them, bytes, or None."""

    __slots__ = ("high", "low", "what")

    def __init__(self, low: int, high: int, what: Any) -> None:
        self.low = low
        self.high = high
        self.what = what

    def is_of(self, storage: torch.UntypedStorage) -> bool:
        """Tell whether it is the node of this storage."""
        return getattr(self.what, "storage", None) is not None and self.what.key == storage._cdata


def holder_of(pickler: UnitContext, low: int, high: int) -> Holder | None:
    """Return what has the memory that a storage looks at, if an earlier dump of the unit has found that."""
    for start, end, owner in pickler.covers:
        if type(owner) is Holder and start <= low and high <= end:
            return owner
    return None


def storage_with(pickler: UnitContext, low: int, high: int) -> tuple[int, Any] | None:
    """Return the start and the node of a storage that has this memory, met in this dump or an earlier one."""
    holder = holder_of(pickler, low, high)
    if holder is not None and hasattr(holder.what, "storage"):
        return holder.low, holder.what
    for start, end, node in pickler.notes.storages:
        if start <= low and high <= end:
            return start, node
    return None


def memory_of(pickler: UnitContext, holder: Holder) -> Any:
    """Return what the memory travels as."""
    if holder.what is not None:
        return holder.what
    low, size = holder.low, holder.high - holder.low
    place, memories = (low, holder.high), pickler.notes.memories
    if place not in memories:
        view = memoryview((ctypes.c_char * size).from_address(low)).cast("B")
        memories[place] = Memory(pickler.emit(view, (low, size)), holder, size)
    return memories[place]


def note(pickler: UnitContext, low: int, high: int, node: Any) -> None:
    """Note the memory of a storage that was met; storages that own theirs overlap with no others of these.

    Has the unit dumped again when an array was met before that came to a part of it by a library's hands.
    """
    if foreign_in(pickler, low, high) and holder_of(pickler, low, high) is None:
        raise Overlap((low, high, Holder(low, high, node)))
    pickler.notes.storages.append((low, high, node))
    if not node.storage.resizable():
        pickler.notes.at_the_end["storages"] = _compare


def _compare(pickler: UnitContext) -> None:
    """Have the unit dumped again when storages overlap with each other or with bytes."""
    met = sorted(pickler.notes.storages, key=lambda one: one[:2])
    covers = [*_in_bytes(met, pickler), *_in_each_other(met)]
    if covers:
        pickler.covers = [*pickler.covers, *covers[1:]]
        raise Overlap(covers[0])


def _in_bytes(met: list[_Met], pickler: UnitContext) -> Iterator[_Met]:
    """Take those out that lie in bytes of the unit, and yield these."""
    for low, high, value in _bytes_met(pickler):
        first = bisect_left(met, low, key=lambda one: one[0])
        behind = bisect_left(met, high, key=lambda one: one[0])
        inside = [one for one in met[first:behind] if one[1] <= high]
        if inside:
            met[first:behind] = [one for one in met[first:behind] if one[1] > high]
            yield low, high, Holder(low, high, value)


def _in_each_other(met: list[_Met]) -> Iterator[_Met]:
    """Yield what has the memory of each group of storages that overlap."""
    together: list[_Met] = []
    end = 0
    for one in [*met, (sys.maxsize, sys.maxsize, None)]:
        if one[0] >= end:
            if len(together) > 1:
                yield _cover(together)
            together = []
        together.append(one)
        end = max(end, one[1])


def _bytes_met(pickler: UnitContext) -> Iterator[_Met]:
    """Yield the memory of the bytes that may be written and that the unit holds."""
    for _, value in pickler.memo.copy().values():
        if type(value) in (bytearray, array) and len(value):
            low = address_of(value)
            yield low, low + memoryview(value).nbytes, value


def _cover(met: list[_Met]) -> _Met:
    low, high = met[0][0], max(end for _, end, _ in met)
    whole = [node for start, end, node in met if (start, end) == (low, high)]
    whole.sort(key=lambda node: not node.storage.resizable())
    return low, high, Holder(low, high, whole[0] if whole else None)
