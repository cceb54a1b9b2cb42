"""Which array of a unit owns a stretch of memory that something else looks at: tensors, foreign buffers.

Law: the owner is dumped whole and the others as places in it, in whichever order a unit meets them.
"""

from __future__ import annotations

from array import array
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.state.capture.outcomes import Overlap
from replkernel.state.python.kinds import kind_of, one_of
from replkernel.state.python.views import address_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_LENT = (bytearray, array, bytes)
_may_lend = one_of((*_LENT, np.ndarray, memoryview))


def covered(pickler: UnitContext, low: int, high: int) -> tuple[int, Any] | None:
    """Return the start and the owner of the memory that these bytes belong to, if this unit has it.

    Otherwise they are remembered, for the owner may come later.
    """
    notes = pickler.notes
    for start, end, owner in (*pickler.covers, *notes.owners, *notes.foreign):
        if start <= low and high <= end and isinstance(owner, np.ndarray):
            return start, owner
    notes.looked_at.append((low, high))
    return None


def lender(pickler: UnitContext, low: int, high: int) -> tuple[int, Any] | None:
    """Return the address and the bytes that a tensor or a buffer of a library looks at.

    Only bytes that a variable is, or looks at as a memoryview or an array does.
    """
    lenders = pickler.notes.lenders
    if lenders is None:
        values = list(pickler.namespace.values())
        found = {id(value): value for value in map(_lends, compress(values, _may_lend(values)))}
        lenders = pickler.notes.lenders = [
            (address_of(value), value) for value in found.values() if kind_of(value) in _LENT and len(value)
        ]
    for start, value in lenders:
        if start <= low and high <= start + memoryview(value).nbytes:
            return start, value
    return None


def _lends(value: object) -> Any:
    """Return the object whose bytes a value of a variable looks at, or the value itself."""
    below = value
    while type(below) is np.ndarray and below.base is not None:
        below = below.base
    try:
        return below.obj if type(below) is memoryview else value
    except ValueError:
        return value  # It was released.


def lend_foreign(pickler: UnitContext, start: int, end: int, values: object) -> None:
    """Let others look at the memory of an array that does not own it, until its owner is met."""
    pickler.notes.foreign.append((start, end, values))


def foreign_in(pickler: UnitContext, start: int, end: int) -> bool:
    """Tell whether an array that does not own its memory was met, and has it from this stretch."""
    return any(start <= low and high <= end for low, high, _ in pickler.notes.foreign)


def met_later(pickler: UnitContext, start: int, end: int, owner: object) -> None:
    """Note an owner; have the unit dumped again when something in its memory was met before it."""
    if any(low <= start and end <= high for low, high, _ in pickler.covers):
        return
    notes = pickler.notes
    for low, high in notes.looked_at:
        if start <= low and high <= end:
            raise Overlap((start, end, owner))
    notes.owners.append((start, end, owner))
