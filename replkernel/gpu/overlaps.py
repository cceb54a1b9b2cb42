"""Which storage of a unit has the memory that several look at, where no array and no variable has it.

`torch.from_numpy(n[1:])` has a storage of its own, which looks at a part of what another one has.
Law: such memory travels once, as the storage that has all of it, or as a stretch of bytes where none does.
"""

from __future__ import annotations

import ctypes
from itertools import groupby
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers.arrays import Memory
from replkernel.namespace.reducers.outcome import AT_THE_END, Overlap

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

_MET = "storages met"


class Holder:
    """What has a stretch of memory that several storages look at: the node of one of them, or none."""

    __slots__ = ("high", "low", "node")

    def __init__(self, low: int, high: int, node: Any) -> None:
        self.low = low
        self.high = high
        self.node = node


def holder_of(pickler: CapturePickler, low: int, high: int) -> Holder | None:
    """Return what has the memory that a storage looks at, if an earlier dump of the unit has found that."""
    for start, end, owner in pickler.covers:
        if type(owner) is Holder and start <= low and high <= end:
            return owner
    return None


def memory_of(pickler: CapturePickler, holder: Holder) -> Any:
    """Return what the memory travels as."""
    if holder.node is not None:
        return holder.node
    low, size = holder.low, holder.high - holder.low
    key = "memory", low, holder.high
    if key not in pickler.extras:
        view = memoryview((ctypes.c_char * size).from_address(low)).cast("B")
        pickler.extras[key] = Memory(pickler.emit(view, (low, size)), holder, size)
    return pickler.extras[key]


def note(pickler: CapturePickler, low: int, high: int, node: Any) -> None:
    """Note the memory of a storage that was met; storages that own theirs overlap with no others of these."""
    pickler.extras.setdefault(_MET, []).append((low, high, node))
    if not node.storage.resizable():
        pickler.extras.setdefault(AT_THE_END, {})[_MET] = _compare


def _compare(pickler: CapturePickler) -> None:
    """Have the unit dumped again when storages overlap that were told apart."""
    end, group = 0, 0
    numbered = []
    for low, high, node in sorted(pickler.extras[_MET], key=lambda met: met[:2]):
        group += low >= end
        end = max(end, high)
        numbered.append((group, (low, high, node)))
    covers = []
    for _, members in groupby(numbered, key=lambda one: one[0]):
        met = [one for _, one in members]
        if len(met) > 1:
            covers.append(_cover(met))
    if covers:
        pickler.covers = [*pickler.covers, *covers[1:]]
        raise Overlap(covers[0])


def _cover(met: list[tuple[int, int, Any]]) -> tuple[int, int, Holder]:
    low, high = met[0][0], max(end for _, end, _ in met)
    whole = [node for start, end, node in met if (start, end) == (low, high)]
    whole.sort(key=lambda node: not node.storage.resizable())
    return low, high, Holder(low, high, whole[0] if whole else None)
