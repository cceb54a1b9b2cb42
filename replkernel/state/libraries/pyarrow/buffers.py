"""Arrow's buffers: the bytes behind arrays and tables, which may be a numpy array's.

Law: imported only when pyarrow is; a buffer on a device pickles in its own way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow

from replkernel.loaders import loader
from replkernel.state.capture.memory_ranges import covered, lender
from replkernel.state.libraries.numpy.bare_arrays import flat_bytes
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_buffer(pickler: UnitContext, buffer: pyarrow.Buffer) -> object:
    """Reduce a buffer to a place in what owns its memory, else to its bytes."""
    pickler.module_needed("pyarrow")
    if not buffer.is_cpu or not buffer.size:
        return NotImplemented
    low, high = buffer.address, buffer.address + buffer.size
    if low not in pickler.notes.apart:
        pickler.touched = True
        pickler.ranges.append((low, high))
        found = covered(pickler, low, high)
        if found is not None and isinstance(found[1], np.ndarray):
            start, owner = found
            return over_array, (owner, low - start, buffer.size)
        lent = lender(pickler, low, high) if found is None and buffer.is_mutable else None
        if lent is not None and type(lent[1]) is not bytes:
            return over_bytes, (lent[1], low - lent[0], buffer.size)
    first = pickler.notes.arrow_buffers.setdefault((low, high), buffer)
    if first is not buffer:
        return itself, (first,)
    return make_buffer, (pickler.emit(memoryview(buffer), (low, high - low)), buffer.is_mutable)


@loader("pyarrow:over_array")
def over_array(owner: object, offset: int, size: int) -> Any:
    """Return a buffer in an array's memory (called by payloads)."""
    return pyarrow.py_buffer(flat_bytes(owner)[offset : offset + size])


@loader("pyarrow:over_bytes")
def over_bytes(owner: pyarrow.Buffer, offset: int, size: int) -> object:
    """Return a buffer in the memory of a bytearray or an `array.array` (called by payloads)."""
    return pyarrow.py_buffer(memoryview(owner).cast("B")[offset : offset + size])


@loader("pyarrow:itself")
def itself(buffer: object) -> Any:
    """Return a buffer (called by payloads)."""
    return buffer


@loader("pyarrow:make_buffer")
def make_buffer(data: bytes | int, mutable: bool) -> object:
    """Return a buffer of bytes (called by payloads)."""
    source = loading.take_buffer(data)
    if mutable and memoryview(source).readonly:
        source = bytearray(source)
    return pyarrow.py_buffer(source if mutable else memoryview(source).toreadonly())


EXACT: dict[type, Any] = {pyarrow.Buffer: reduce_buffer}
