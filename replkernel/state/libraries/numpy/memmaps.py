"""numpy arrays in memory-mapped files: the file is mapped again, and views of the map stay views.

Law: imported only when numpy is; a map for copy on write brings its contents with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from replkernel.loaders import loader
from replkernel.state.capture.memory_ranges import met_later
from replkernel.state.libraries.numpy.bare_arrays import address, attributes_of, flat_bytes
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.libraries.numpy.bare_arrays import Array

_MAP = "_mmap"
ReduceArray: TypeAlias = "Callable[[UnitContext, Any], Any]"


def reduce_memmap(pickler: UnitContext, values: np.memmap[Any, Any], reduce_array: ReduceArray) -> Any:
    """Reduce a map, or a view of one; what is no map any more goes as any array does."""
    state = attributes_of(values) or {}
    mapped = state.pop(_MAP, None)
    if mapped is None or values.base is not mapped or state.get("filename") is None:
        reduced = reduce_array(pickler, values)
        if reduced is NotImplemented or mapped is None:
            return reduced
        return (*reduced[:2], (state, _map_holder(values)), None, None, fill_view)
    data: bytes | int = b""
    if values.mode == "c":
        data = pickler.emit(memoryview(flat_bytes(values)), None)
    elif values.mode != "r":
        values.flush()
    start = address(values)
    pickler.touched = True
    pickler.ranges.append((start, start + values.nbytes))
    met_later(pickler, start, start + values.nbytes, values)
    order = "C" if values.flags.c_contiguous else "F"
    place = (str(values.filename), values.dtype, values.mode, values.offset, values.shape, order)
    return open_memmap, (*place, data), state, None, None, fill_memmap


def _map_holder(values: Array) -> Any:
    """Return the map that a view belongs to."""
    while isinstance(values.base, np.memmap):
        values = values.base
    return values


@loader("numpy:open_memmap")
def open_memmap(
    path: str,
    dtype: np.dtype[Any],
    mode: Any,
    offset: int,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    data: bytes | int = b"",
) -> Any:
    """Map a file again (called by payloads)."""
    values = np.memmap(path, dtype, mode if mode in ("r", "c") else "r+", offset, shape, order)
    if mode == "c":
        contents = np.frombuffer(loading.take_buffer(data), np.uint8)
        flat = flat_bytes(values)
        changed = flat != contents
        flat[changed] = contents[changed]
    return values


@loader("numpy:fill_memmap")
def fill_memmap(values: Array, state: dict[str, Any]) -> None:
    """Give a map its attributes (called by payloads)."""
    vars(values).update(state)


@loader("numpy:fill_view")
def fill_view(values: Array, state: tuple[dict[str, Any], Any]) -> None:
    """Give a view of a map its attributes (called by payloads)."""
    attributes, holder = state
    vars(values).update(attributes, **{_MAP: vars(holder).get(_MAP)})
