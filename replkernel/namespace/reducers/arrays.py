"""numpy arrays: the owner of the memory travels once, and each array as a place in it.

Views keep sharing, so do arrays over bytearrays and over torch tensors. The owner is rebuilt as an array that
owns its memory, as it was. Law: imported only when numpy is.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.namespace import loading
from replkernel.namespace.reducers.outcome import Overlap
from replkernel.namespace.stream import OUT_OF_BAND_BYTES

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

_PLAIN_KINDS = frozenset("?biufcSUmM")
_DUMMY: type = type(np.lib.stride_tricks.as_strided(np.zeros(1), (1,), (8,)).base)
_STOCK_REDUCE: Any = (np.ndarray.__reduce__, np.ndarray.__reduce_ex__, np.ndarray.__setstate__)


def dtype_token(dtype: Any) -> Any:
    """Return a short name of a plain dtype, else the dtype itself."""
    if dtype.kind in _PLAIN_KINDS and dtype.metadata is None and dtype.fields is None:
        return dtype.str
    return dtype


def address(values: Any) -> int:
    """Return the address of an array's first element."""
    return int(values.__array_interface__["data"][0])


def owner_of(values: Any) -> Any:
    """Return the object that owns an array's memory: itself, another array, or something else."""
    owner = values
    while True:
        base = owner.base
        if base is None:
            return owner
        if isinstance(base, (np.ndarray, _DUMMY)):
            owner = base
            continue
        return base if not isinstance(owner, np.memmap) else owner


def flat_bytes(values: Any) -> Any:
    """Return the bytes of an array that is contiguous in one order, as a flat uint8 array over them."""
    rows = values if values.flags.c_contiguous else values.T
    return np.asarray(rows).reshape(-1).view(np.uint8)


def reduce_array(pickler: CapturePickler, values: Any) -> Any:
    """Reduce an array of any dtype."""
    pickler.modules.add("numpy")
    dtype = values.dtype
    flags = values.flags
    if dtype.hasobject:
        if dtype.kind != "O":
            return NotImplemented
        return _reduce_objects(pickler, values)
    if pickler.extras and id(values) in pickler.extras.get("solo", ()):
        return _reduce_alone(pickler, values)
    owner = owner_of(values)
    if owner is values and (flags.c_contiguous or flags.f_contiguous):
        return _reduce_owner(pickler, values)
    place = (values.shape, values.strides, dtype_token(dtype), flags.writeable, _class_of(values))
    if isinstance(owner, np.ndarray) and owner is not values and not owner.dtype.hasobject:
        if owner.flags.c_contiguous or owner.flags.f_contiguous:
            _note_range(pickler, address(owner), owner.nbytes)
            return (make_view, (owner, address(values) - address(owner), *place), *_state(values))
    elif isinstance(owner, (bytes, bytearray, array, memoryview)):
        offset = address(values) - address(np.frombuffer(owner, np.uint8)) if values.size else 0
        return (make_over_buffer, (owner, offset, *place), *_state(values))
    elif _is_tensor(owner):
        from replkernel.gpu import storages

        storage = storages.storage_node(pickler, owner)
        return (
            storages.make_array_view,
            (storage, address(values) - storage.data_ptr(), *place),
            *_state(values),
        )
    return _reduce_copy(pickler, values)


def _is_tensor(owner: object) -> bool:
    return type(owner).__module__.partition(".")[0] == "torch" and hasattr(owner, "untyped_storage")


def _note_range(pickler: CapturePickler, start: int, size: int) -> None:
    pickler.touched = True
    if size:
        pickler.ranges.append((start, start + size))


def _class_of(values: Any) -> type | None:
    cls = type(values)
    return None if cls is np.ndarray else cls


def _state(values: Any) -> tuple[Any, ...]:
    """Return what a subclass's instance has beside its elements, as the rest of a reduce tuple."""
    attributes = getattr(values, "__dict__", None) if type(values) is not np.ndarray else None
    return (dict(attributes), None, None, fill_attributes) if attributes else ()


def _reduce_owner(pickler: CapturePickler, values: Any) -> Any:
    size = values.nbytes
    if size:
        start = address(values)
        cover = _covering(pickler, start, start + size)
        _note_range(pickler, start, size)
        small = size < OUT_OF_BAND_BYTES
        data = values.tobytes("A") if small else pickler.emit(memoryview(flat_bytes(values)), (start, size))
        if cover is None:
            _check_tensors(pickler, start, start + size, values)
            pickler.extras.setdefault("array ranges", []).append((start, start + size, values))
    else:
        data = b""
    order = "C" if values.flags.c_contiguous else "F"
    made = (data, dtype_token(values.dtype), values.shape, order, values.flags.writeable, _class_of(values))
    return (make_array, made, *_state(values))


def _covering(pickler: CapturePickler, start: int, end: int) -> Any:
    return next((cover for cover in pickler.covers if cover[0] <= start and end <= cover[1]), None)


def _check_tensors(pickler: CapturePickler, start: int, end: int, values: Any) -> None:
    """Have the unit dumped again when a tensor over this array's memory was met before it."""
    for low, high in pickler.extras.get("tensor ranges", ()):
        if start <= low and high <= end:
            raise Overlap((start, end, values))


def _reduce_copy(pickler: CapturePickler, values: Any) -> Any:
    """Reduce an array whose owner is unknown or not contiguous: it gets memory of its own."""
    if values.size:
        low, high = np.lib.array_utils.byte_bounds(values)
        _note_range(pickler, low, high - low)
        if high - low <= 4 * values.nbytes:
            memory = memoryview((ctypes.c_char * (high - low)).from_address(low)).cast("B")
            data = pickler.emit(memory, (low, high - low))
            key = ("memory", low, high)
            block = pickler.extras.setdefault(key, Memory(data, values))
            place = (values.shape, values.strides, dtype_token(values.dtype), values.flags.writeable)
            return make_view, (block, address(values) - low, *place, _class_of(values))
    return _reduce_alone(pickler, values)


def _reduce_alone(pickler: CapturePickler, values: Any) -> Any:
    """Reduce an array to a copy that shares memory with nothing."""
    whole = values.flags.c_contiguous or values.flags.f_contiguous
    source = values if whole else np.array(values, copy=True, order="K", subok=False)
    key = (address(values), values.nbytes) if whole else None
    data = pickler.emit(memoryview(flat_bytes(source)), key) if values.size else b""
    order = "C" if source.flags.c_contiguous else "F"
    made = (data, dtype_token(values.dtype), values.shape, order, values.flags.writeable, _class_of(values))
    return make_array, made


class Memory:
    """Stands for memory that no known object owns."""

    __slots__ = ("data", "keep")

    def __init__(self, data: bytes | int, keep: Any) -> None:
        self.data = data
        self.keep = keep


def reduce_memory(pickler: CapturePickler, memory: Memory) -> Any:
    """Reduce such memory to an array of bytes."""
    return make_memory, (memory.data,)


def make_memory(data: bytes | int) -> Any:
    """Return an array of bytes (called by payloads)."""
    return np.frombuffer(loading.take_buffer(data), np.uint8).copy()


def make_array(data: bytes | int, dtype: Any, shape: Any, order: Any, writeable: bool, cls: Any) -> Any:
    """Return an array that owns its memory (called by payloads)."""
    values: Any = np.ndarray.__new__(cls or np.ndarray, shape, dtype, order=order)
    if values.nbytes:
        flat_bytes(values)[:] = np.frombuffer(loading.take_buffer(data), np.uint8)
    if not writeable:
        values.flags.writeable = False
    return values


def make_view(
    owner: Any, offset: int, shape: Any, strides: Any, dtype: Any, writeable: bool, cls: Any
) -> Any:
    """Return an array in another's memory (called by payloads)."""
    locked = writeable and not owner.flags.writeable
    if locked:
        owner.flags.writeable = True
    values: Any = np.ndarray.__new__(cls or np.ndarray, shape, dtype, owner, offset, strides)
    if locked:
        owner.flags.writeable = False
    if not writeable:
        values.flags.writeable = False
    return values


def make_over_buffer(
    owner: Any, offset: int, shape: Any, strides: Any, dtype: Any, writeable: bool, cls: Any
) -> Any:
    """Return an array over a bytes-like object (called by payloads)."""
    values: Any = np.ndarray.__new__(cls or np.ndarray, shape, dtype, owner, offset, strides)
    if not writeable and values.flags.writeable:
        values.flags.writeable = False
    return values


def fill_attributes(values: Any, state: dict[str, Any]) -> None:
    """Give an instance of a subclass its attributes (called by payloads)."""
    vars(values).update(state)


# -- arrays of objects -----------------------------------------------------------------------------


def _reduce_objects(pickler: CapturePickler, values: Any) -> Any:
    owner = owner_of(values)
    flags = values.flags
    if (
        owner is values
        or not isinstance(owner, np.ndarray)
        or not (owner.flags.c_contiguous or owner.flags.f_contiguous)
    ):
        order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
        items = values.reshape(-1, order=order).tolist()
        state = (items, getattr(values, "__dict__", None), flags.writeable)
        return make_objects, (values.shape, order, _class_of(values)), state, None, None, fill_objects
    place = (values.shape, values.strides, flags.writeable, _class_of(values))
    return (make_object_view, (owner, address(values) - address(owner), *place), *_state(values))


def make_objects(shape: Any, order: Any, cls: Any) -> Any:
    """Return an array of objects, all None (called by payloads)."""
    return np.ndarray.__new__(cls or np.ndarray, shape, object, order=order)


def fill_objects(values: Any, state: tuple[list[Any], Any, bool]) -> None:
    """Put the objects in (called by payloads)."""
    items, attributes, writeable = state
    flat = values.reshape(-1, order="C" if values.flags.c_contiguous else "F")
    for index, item in enumerate(items):
        flat[index] = item
    if attributes:
        vars(values).update(attributes)
    if not writeable:
        values.flags.writeable = False


def make_object_view(owner: Any, offset: int, shape: Any, strides: Any, writeable: bool, cls: Any) -> Any:
    """Return an array of objects in another's memory (called by payloads)."""
    flat = owner.reshape(-1, order="C" if owner.flags.c_contiguous else "F")
    step = flat.itemsize
    view = np.lib.stride_tricks.as_strided(flat[offset // step :], shape, strides)
    if cls is not None:
        view = view.view(cls)
    if not writeable:
        view.flags.writeable = False
    return view


# -- subclasses and memory-mapped files -------------------------------------------------------------


def reduce_subclass(pickler: CapturePickler, values: Any) -> Any:
    """Reduce an instance of a subclass: as an array unless the subclass pickles in its own way."""
    cls = type(values)
    if isinstance(values, np.memmap) and owner_of(values) is values:
        return _reduce_memmap(pickler, values)
    if (cls.__reduce__, cls.__reduce_ex__, cls.__setstate__) != _STOCK_REDUCE:
        return NotImplemented
    return reduce_array(pickler, values)


def _reduce_memmap(pickler: CapturePickler, values: Any) -> Any:
    if values.filename is None or values.mode == "c":
        return _reduce_copy(pickler, values)
    if values.mode != "r":
        values.flush()
    order = "C" if values.flags.c_contiguous else "F"
    return open_memmap, (
        str(values.filename),
        dtype_token(values.dtype),
        values.mode,
        values.offset,
        values.shape,
        order,
    )


def open_memmap(path: str, dtype: Any, mode: Any, offset: int, shape: Any, order: Any) -> Any:
    """Map a file again (called by payloads)."""
    return np.memmap(path, dtype, "r" if mode == "r" else "r+", offset, shape, order)


EXACT = {np.ndarray: reduce_array, Memory: reduce_memory}
FAMILIES = [(np.ndarray, reduce_subclass)]
