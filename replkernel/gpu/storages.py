"""torch storages: the bytes behind tensors travel once, whoever looks at them.

A storage over a numpy array's memory stays one, and an array over a storage as well.
Law: a storage on a GPU comes back on a GPU, or not at all.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.gpu import overlaps
from replkernel.gpu.device_buffer import DeviceBuffer
from replkernel.gpu.device_copy import BATCH_CHUNKS, fill
from replkernel.gpu.in_place import parked_of
from replkernel.gpu.mapped_files import (
    make_from_file,
    make_mapped,
    may_be_mapped,
    place_in_file,
    seen_by_forks,
    write_out,
)
from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader
from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.state.capture.dump import Identity
from replkernel.state.capture.memory_ranges import covered, lender
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def storage_of(tensor: torch.Tensor) -> Any:
    """Return a tensor's storage."""
    return torch.Tensor.untyped_storage(tensor)


class Storage:
    """Stands for one storage in a unit: torch may hand out a new Python object each time it is asked."""

    __slots__ = ("key", "storage")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage = storage
        self.key = storage._cdata

    def data_ptr(self) -> int:
        """Return the address of the storage."""
        return int(self.storage.data_ptr())


def storage_node(pickler: UnitContext, tensor: torch.Tensor) -> Any:
    """Return what stands for a tensor's storage: the array that owns its memory, or a node of its own."""
    storage = storage_of(tensor)
    start, size = storage.data_ptr(), storage.nbytes()
    pickler.touched = True
    holder = None
    if size and storage.device.type == "cpu":
        pickler.ranges.append((start, start + size))
        found = covered(pickler, start, start + size)
        if found is not None:
            low, owner = found
            return Shared(owner, start, start - low, size)
        if not storage.resizable():
            lent = lender(pickler, start, start + size)
            if lent is not None:
                return Shared(lent[1], start, start - lent[0], size)
        holder = overlaps.holder_of(pickler, start, start + size)
        if holder is not None and not holder.is_of(storage):
            return Shared(overlaps.memory_of(pickler, holder), start, start - holder.low, size)
    known = pickler.notes.tensor_storages
    node = known.get(storage._cdata)
    if node is None:
        node = known[storage._cdata] = Storage(storage) if holder is None else holder.what
        pickler.links.append(Identity(storage._cdata))
        if size and storage.device.type == "cpu":
            overlaps.note(pickler, start, start + size, node)
    return node


class Shared:
    """Stands for a storage inside an array's memory."""

    __slots__ = ("offset", "owner", "size", "start")

    def __init__(self, owner: object, start: int, offset: int, size: int) -> None:
        self.owner = owner
        self.start = start
        self.offset = offset
        self.size = size

    def data_ptr(self) -> int:
        """Return the address of the storage."""
        return self.start


def reduce_shared(pickler: UnitContext, shared: Shared) -> object:
    """Reduce such a storage."""
    return make_shared, (shared.owner, shared.offset, shared.size)


@loader("torch:make_shared")
def make_shared(owner: object, offset: int, size: int) -> object:
    """Return the storage of a tensor over an array's memory (called by payloads)."""
    if isinstance(owner, torch.UntypedStorage):
        owner = torch.empty(0, dtype=torch.uint8, device="cpu").set_(owner).numpy()
    if not isinstance(owner, np.ndarray):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bytes, which may not be written
            return torch.frombuffer(owner, dtype=torch.uint8, count=size, offset=offset).untyped_storage()
    flat: object = np.ndarray.__new__(np.ndarray, (size,), np.uint8, owner, offset, (1,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a file that may only be read
        return torch.from_numpy(flat).untyped_storage()


POSING = "posing"
"""The kind of a pretended GPU."""


def device_of(storage: torch.UntypedStorage) -> str:
    """Return the device that a storage lies on, or on which it poses."""
    fake = sys.modules.get("replkernel.gpu.fake")
    index = None if fake is None else fake.index_of(storage)
    return str(storage.device) if index is None else f"{POSING}:{index}"


def needs(pickler: UnitContext, device: str) -> None:
    """Note that a unit can only be rebuilt where there is a GPU, if this device is one."""
    kind, _, index = device.partition(":")
    if kind in ("cuda", POSING):
        pickler.touched = True
        pickler.gpus = max(pickler.gpus, int(index or 0) + 1)


def reduce_storage(pickler: UnitContext, node: Storage) -> object:
    """Reduce a storage to its bytes and its device."""
    storage = node.storage
    size, device = storage.nbytes(), device_of(storage)
    needs(pickler, device)
    parked = parked_of(storage)
    if parked is not None:
        return make_storage, (pickler.emit(DeviceBuffer(torch, storage, parked), None), device)
    if storage.device.type == "meta":
        return make_empty, (size, device)
    if not size:
        return make_storage, (b"", device)
    if device != "cpu":
        return make_storage, (pickler.emit(DeviceBuffer(torch, storage), None), device)
    if not storage.resizable() and may_be_mapped(storage):
        mapped = place_in_file(storage.data_ptr(), size)
        if mapped is not None:
            write_out(storage.data_ptr(), size)
            by_torch = mapped.offset == 0 and storage.is_shared()
            return (make_from_file, (mapped.path, size)) if by_torch else (make_mapped, (*mapped, size))
    view = memoryview((ctypes.c_char * size).from_address(storage.data_ptr())).cast("B")
    pickler.notes.kept.append(storage)
    for_workers = storage.is_shared() and (storage.resizable() or seen_by_forks(storage.data_ptr(), size))
    maker = make_for_workers if for_workers else make_storage
    return maker, (pickler.emit(view, (storage.data_ptr(), size)), device)


@loader("torch:make_storage")
def make_storage(data: bytes | int, device: str) -> Any:
    """Return a storage that owns its memory (called by payloads)."""
    source = loading.take_buffer(data)
    kind, _, index = device.partition(":")
    place = "cpu" if kind in ("cpu", POSING) else present_device(device)
    made = torch.empty(len(source), dtype=torch.uint8, device=place)
    if kind == POSING:
        from replkernel.gpu.fake import adopted

        made = adopted(made, int(index))
    if len(source) and place == "cpu":
        ctypes.memmove(
            made.data_ptr(), (ctypes.c_char * len(source)).from_buffer(_writable(source)), len(source)
        )
    elif len(source):
        fill(made, _writable(source), BATCH_CHUNKS * CHUNK_BYTES)
    return made.untyped_storage()


@loader("torch:make_for_workers")
def make_for_workers(data: bytes | int, device: str) -> Any:
    """Return a storage in memory that processes forked from here will share (called by payloads)."""
    storage = make_storage(data, device)
    storage.share_memory_()
    return storage


def _writable(source: Any) -> Any:
    view = memoryview(source)
    return bytearray(source) if view.readonly else view


def present_device(device: str) -> str:
    """Return the device itself, or the nearest one that this process has."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise CannotTravel(f"A tensor lives on {device}, and this process has no GPU.")
        return device if int(index or 0) < torch.cuda.device_count() else "cuda:0"
    return device


@loader("torch:make_empty")
def make_empty(size: int, device: str) -> object:
    """Return a storage without contents (called by payloads)."""
    return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()


@loader("torch:make_array_view")
def make_array_view(
    storage: torch.UntypedStorage,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype[Any] | str,
    writeable: bool,
    cls: Any,
) -> object:
    """Return a numpy array in a tensor's memory (called by payloads)."""
    flat = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
    values = np.ndarray.__new__(cls or np.ndarray, shape, dtype, flat, offset, strides)
    if not writeable:
        values.flags.writeable = False
    return values


def reduce_untyped(pickler: UnitContext, storage: torch.UntypedStorage) -> object:
    """Reduce a storage that a variable holds itself."""
    return storage_itself, (
        storage_node(pickler, torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)),
    )


@loader("torch:storage_itself")
def storage_itself(storage: object) -> object:
    """Return a storage (called by payloads)."""
    return storage


def place(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: Sequence[int],
    stride: Sequence[int],
    conj: bool,
    neg: bool,
) -> Any:
    """Return a tensor at a place in a storage, no view of another tensor, that nobody has changed yet."""
    tensor = torch.empty(0, dtype=dtype, device=storage.device)
    with torch.no_grad():
        tensor.set_(storage, offset, shape, stride)
    if not tensor.is_inference():  # which counts no changes
        torch._C._autograd._unsafe_set_version_counter((tensor,), (0,))
    bits = {name: True for name, is_set in (("conj", conj), ("neg", neg)) if is_set}
    if bits:
        torch._C._set_tensor_metadata(tensor, bits)  # type: ignore[attr-defined]
    return tensor


EXACT: dict[type, Any] = {
    torch.UntypedStorage: reduce_untyped,
    Storage: reduce_storage,
    Shared: reduce_shared,
}
