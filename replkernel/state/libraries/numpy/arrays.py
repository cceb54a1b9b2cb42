"""numpy arrays: the owner of the memory travels once, and each array as a place in it.

Views keep sharing, so do arrays over bytearrays and over torch tensors. The owner is rebuilt as an array that
owns its memory, as it was. Law: imported only when numpy is.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from array import array
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from replkernel.loaders import loader
from replkernel.state.capture.memory_ranges import covered, lend_foreign, lender, met_later
from replkernel.state.format.stream import OUT_OF_BAND_BYTES
from replkernel.state.libraries.numpy import objects as numpy_objects
from replkernel.state.libraries.numpy.bare_arrays import (
    Blank,
    Memory,
    address,
    attributes_of,
    axes_of_block,
    class_of,
    fill_attributes,
    fill_slots,
    flat_bytes,
    in_class,
    in_slots,
    is_one_block,
    new_array,
    unlocked,
    writeable,
)
from replkernel.state.libraries.numpy.memmaps import reduce_memmap
from replkernel.state.libraries.numpy.object_arrays import reduce_objects
from replkernel.state.libraries.numpy.own_maps import in_own_map, own_map_of
from replkernel.state.python.kinds import kind_of, module_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.libraries.numpy.bare_arrays import Array

_PLAIN_KINDS = frozenset("?biufcSUmM")
_BYTES = np.dtype(np.uint8).str
_DUMMY: type = type(np.lib.stride_tricks.as_strided(np.zeros(1), (1,), (8,)).base)
_STOCK_REDUCE: Any = (np.ndarray.__reduce__, np.ndarray.__reduce_ex__, np.ndarray.__setstate__)


def dtype_token(dtype: np.dtype[Any]) -> Any:
    """Return a short name of a plain dtype, else the dtype itself."""
    if dtype.kind in _PLAIN_KINDS and dtype.metadata is None and dtype.fields is None:
        return dtype.str
    return dtype


def owner_of(values: Any) -> Any:
    """Return the object that owns an array's memory: itself, another array, or something else."""
    owner = values
    while True:
        base = owner.base
        if base is None:
            return owner
        if isinstance(base, (np.ndarray, _DUMMY)):
            owner = base
            if (
                isinstance(owner, np.ndarray)
                and type(owner) is not np.ndarray
                and is_one_block(owner)
                and (type(values) is not np.ndarray or type(owner.base) is not np.ndarray)
            ):
                # A plain view that is made over a subclass gets the plain array below that for its base.
                return owner
            continue
        if type(base) is memoryview:
            base = _lender(base)
            if isinstance(base, np.ndarray):
                owner = base
                continue
        lends = owner is values or _is_tensor(base)
        return base if lends and not isinstance(owner, np.memmap) else owner


def _lender(view: memoryview) -> object:
    """Return what an array over a memoryview travels with: the view, the object behind it, or None."""
    behind = view.obj
    if kind_of(behind) in (bytes, bytearray, array, mmap.mmap):
        return view if view.ndim == 1 and view.contiguous else behind
    if isinstance(behind, ctypes.Array):
        return behind
    return behind if isinstance(behind, np.ndarray) else None


def reduce_array(pickler: UnitContext, values: Array) -> Any:
    """Reduce an array of any dtype."""
    pickler.modules.add("numpy")
    dtype = values.dtype
    flags = values.flags
    if dtype.hasobject:
        return reduce_objects(pickler, values)
    if (alone := pickler.notes.alone) and id(values) in alone:
        return _reduce_alone(pickler, values)
    owner = owner_of(values)
    if isinstance(owner, np.ndarray) and owner.dtype.hasobject:
        return reduce_objects(pickler, values)
    if owner is values and (flags.c_contiguous or flags.f_contiguous):
        return _reduce_owner(pickler, values)
    if owner is values and (axes := axes_of_block(values)) is not None:
        return _reduce_permuted(pickler, values, axes)
    place = (values.shape, values.strides, dtype_token(dtype), writeable(values), class_of(values))
    if isinstance(owner, np.ndarray) and owner is not values:
        if _is_foreign(values, owner):
            lent = _in_lent_memory(pickler, values, place)
            if lent is not None:
                return lent
        if is_one_block(owner):
            _note_range(pickler, address(owner), owner.nbytes)
            return (make_view, (owner, address(values) - address(owner), *place), *_state(values))
    elif isinstance(owner, (bytes, bytearray, array, memoryview, ctypes.Array)):
        offset = address(values) - _start_of(owner) if values.size else 0
        return (make_over_buffer, (owner, offset, *place), *_state(values))
    elif _is_tensor(owner):
        from replkernel.gpu import storages

        storage = storages.storage_node(pickler, owner)
        return (
            storages.make_array_view,
            (storage, address(values) - storage.data_ptr(), *place),
            *_state(values),
        )
    return _reduce_foreign(pickler, values)


def _start_of(lender: Any) -> int:
    """Return the address of a bytes-like object's first byte."""
    return address(np.frombuffer(lender, np.uint8))


def _is_foreign(values: np.ndarray[Any, Any], owner: Any) -> bool:
    """Tell whether the array that owns an array's memory came to it by a library's hands."""
    base = owner.base
    if base is None or kind_of(base) in (memoryview, bytes) or not values.size:
        return False
    return not (isinstance(base, np.ndarray) or isinstance(owner, np.memmap))


def _in_lent_memory(pickler: UnitContext, values: Array, place: tuple[Any, ...]) -> Any:
    """Reduce an array to a place in what else of this unit has its memory; return None where nothing has."""
    lent = _lent(pickler, *np.lib.array_utils.byte_bounds(values))
    if lent is None:
        return None
    maker, start, whose = lent
    return (maker, (whose, address(values) - start, *place), *_state(values))


def _lent(pickler: UnitContext, low: int, high: int) -> tuple[Any, int, Any] | None:
    """Return what makes an array in the memory of something else of this unit, its address, and that."""
    found = covered(pickler, low, high)
    if found is not None:
        return make_view, *found
    found = lender(pickler, low, high)
    if found is not None:
        return make_over_buffer, *found
    if not pickler.notes.storages and not pickler.covers:
        return None
    from replkernel.gpu import overlaps, storages

    found = overlaps.storage_with(pickler, low, high)
    return None if found is None else (storages.make_array_view, *found)


def _is_tensor(owner: object) -> bool:
    return type(owner).__module__.partition(".")[0] == "torch" and hasattr(owner, "untyped_storage")


def _note_range(pickler: UnitContext, start: int, size: int) -> None:
    pickler.touched = True
    if size:
        pickler.ranges.append((start, start + size))


def _state(values: object) -> tuple[Any, ...]:
    """Return what a subclass's instance has beside its elements, as the rest of a reduce tuple."""
    attributes, slots = attributes_of(values), in_slots(values)
    if slots:
        return (attributes, slots), None, None, fill_slots
    return (attributes, None, None, fill_attributes) if attributes else ()


def _reduce_owner(pickler: UnitContext, values: Array) -> Any:
    size = values.nbytes
    data: bytes | int = b""
    if size:
        start = address(values)
        _note_range(pickler, start, size)
        if size < OUT_OF_BAND_BYTES:
            data = np.asarray(values).tobytes("A")
        else:
            data = pickler.emit(memoryview(flat_bytes(values)), (start, size))
        met_later(pickler, start, start + size, values)
    order = "C" if values.flags.c_contiguous else "F"
    made = (data, dtype_token(values.dtype), values.shape, order, values.flags.writeable, class_of(values))
    return (make_array, made, *_state(values))


def _reduce_permuted(pickler: UnitContext, values: Array, axes: tuple[int, ...]) -> Any:
    """Reduce an array that owns one block of memory with its axes in an order of their own."""
    size, start = values.nbytes, address(values)
    _note_range(pickler, start, size)
    rows = np.asarray(values).transpose(axes)
    data = (
        rows.tobytes()
        if size < OUT_OF_BAND_BYTES
        else pickler.emit(memoryview(flat_bytes(rows)), (start, size))
    )
    met_later(pickler, start, start + size, values)
    made = (data, dtype_token(values.dtype), rows.shape, axes, values.flags.writeable, class_of(values))
    return (make_permuted, made, *_state(values))


def _reduce_foreign(pickler: UnitContext, values: Array) -> object:
    """Reduce an array whose owner is unknown: to a place in an array that is known, or to a copy."""
    if not values.size:
        return _reduce_alone(pickler, values)
    low, high = np.lib.array_utils.byte_bounds(values)
    _note_range(pickler, low, high - low)
    place = (values.shape, values.strides, dtype_token(values.dtype), writeable(values), class_of(values))
    lent = _in_lent_memory(pickler, values, place)
    if lent is not None:
        return lent
    if is_one_block(values):
        lend_foreign(pickler, low, high, values)
        return _reduce_alone(pickler, values)
    if high - low > 4 * values.nbytes:
        return _reduce_alone(pickler, values)
    memory = memoryview((ctypes.c_char * (high - low)).from_address(low)).cast("B")
    data = pickler.emit(memory, (low, high - low))
    block = pickler.notes.memories.setdefault((low, high), Memory(data, values, high - low))
    return (make_view, (block, address(values) - low, *place), *_state(values))


def _reduce_alone(pickler: UnitContext, values: Array) -> Any:
    """Reduce an array to a copy that shares memory with nothing."""
    whole = values.flags.c_contiguous or values.flags.f_contiguous
    source = values if whole else np.array(values, copy=True, order="C", subok=False)
    key = (address(values), values.nbytes) if whole else None
    data = pickler.emit(memoryview(flat_bytes(source)), key) if values.size else b""
    order = "C" if source.flags.c_contiguous else "F"
    made = (data, dtype_token(values.dtype), values.shape, order, writeable(values), class_of(values))
    return (make_array, made, *_state(values))


def reduce_memory(pickler: UnitContext, memory: Memory) -> object:
    """Reduce such memory to an array of bytes."""
    return make_array, (memory.data, _BYTES, (memory.size,), "C", True, None)


@loader("numpy:make_array")
def make_array(
    data: bytes | int,
    dtype: np.dtype[Any] | str,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    may_write: bool,
    cls: type | None,
) -> Any:
    """Return an array that owns its memory (called by payloads)."""
    with in_own_map(math.prod(shape) * np.dtype(dtype).itemsize) as may_be_mapped:
        values = new_array(cls, shape, dtype, order=order)
    if values.nbytes:
        own_map = own_map_of(values) if may_be_mapped else None
        loading.fill_from(data, memoryview(flat_bytes(values)), own_map)
    if not may_write:
        values.flags.writeable = False
    return values


@loader("numpy:make_permuted")
def make_permuted(
    data: bytes | int,
    dtype: np.dtype[Any] | str,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    may_write: bool,
    cls: type | None,
) -> Any:
    """Return an array that owns its memory, with its axes in an order of their own (called by payloads)."""
    values = np.empty_like(new_array(cls and Blank, shape, dtype).transpose(np.argsort(axes)), order="K")
    loading.fill_from(data, memoryview(flat_bytes(np.asarray(values).transpose(axes))))
    values = in_class(values, cls)
    if not may_write:
        values.flags.writeable = False
    return values


@loader("numpy:make_view")
def make_view(
    owner: Array, offset: int, shape: object, strides: object, dtype: object, may_write: bool, cls: object
) -> Any:
    """Return an array in another's memory (called by payloads)."""
    with unlocked(owner, may_write):
        buffer = owner if owner.flags.c_contiguous else flat_bytes(owner)
        values = new_array(cls, shape, dtype, buffer, offset, strides)
    if not may_write:
        values.flags.writeable = False
    return values


@loader("numpy:make_over_buffer")
def make_over_buffer(
    owner: np.ndarray[Any, Any],
    offset: int,
    shape: tuple[int, ...],
    strides: object,
    dtype: np.dtype[Any] | str,
    may_write: bool,
    cls: object,
) -> Any:
    """Return an array over a bytes-like object, whose size it holds (called by payloads)."""
    plain = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    if cls is None and count and len(shape) == 1 and strides == (plain.itemsize,):
        values = np.frombuffer(owner, plain, count, offset)
    else:
        values = new_array(cls, shape, dtype, owner, offset, strides)
    if not may_write and values.flags.writeable:
        values.flags.writeable = False
    return values


# -- subclasses -------------------------------------------------------------------------------------


def reduce_subclass(pickler: UnitContext, values: Array) -> object:
    """Reduce an instance of a subclass: as an array unless the subclass pickles in its own way."""
    cls = type(values)
    if isinstance(values, np.memmap):
        return reduce_memmap(pickler, values, reduce_array)
    stock = (cls.__reduce__, cls.__reduce_ex__, cls.__setstate__) == _STOCK_REDUCE
    if not stock and not (_is_masked(values) or module_of(cls) == pickler.world.seeds.main_name):
        return NotImplemented
    return reduce_array(pickler, values)


def _is_masked(values: object) -> bool:
    """Tell whether it is a masked array, which shares its data and its mask with others."""
    return isinstance(values, np.ma.MaskedArray) and values is not np.ma.masked


EXACT: dict[type, Any] = {np.ndarray: reduce_array, Memory: reduce_memory, **numpy_objects.EXACT}
FAMILIES = [(np.ndarray, reduce_subclass), *numpy_objects.FAMILIES]
