"""torch tensors: the storage travels once, each tensor as a place in it, with `.grad`, hooks and attributes.

A tensor on a GPU is copied to host memory only when a digest taken on the device has changed.
A graph of autograd cannot travel: its result does, and `backward` through it says what was lost.
Law: imported only when torch is.
"""

from __future__ import annotations

import ctypes
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from replkernel.namespace import loading
from replkernel.namespace.reducers.outcome import CannotTravel
from replkernel.namespace.tombstone import Loss

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

GRAPH_NODES_MAX = 500
"""No more nodes of an autograd graph are asked whether it was freed."""



def storage_of(tensor: Any) -> Any:
    """Return a tensor's storage."""
    return torch.Tensor.untyped_storage(tensor)


# -- storages --------------------------------------------------------------------------------------


class Storage:
    """Stands for one storage in a unit: torch may hand out a new Python object each time it is asked."""

    __slots__ = ("key", "storage")

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.key = storage._cdata

    def data_ptr(self) -> int:
        """Return the address of the storage."""
        return int(self.storage.data_ptr())


def storage_node(pickler: CapturePickler, tensor: Any) -> Any:
    """Return what stands for a tensor's storage: the array that owns its memory, or a node of its own."""
    storage = storage_of(tensor)
    start, size = storage.data_ptr(), storage.nbytes()
    pickler.touched = True
    if size and storage.device.type == "cpu":
        pickler.ranges.append((start, start + size))
        for low, high, owner in (*pickler.covers, *pickler.extras.get("array ranges", ())):
            if low <= start and start + size <= high:
                return Shared(owner, start - low, size)
        pickler.extras.setdefault("tensor ranges", []).append((start, start + size))
    key = ("storage", storage._cdata)
    node = pickler.extras.get(key)
    if node is None:
        node = pickler.extras[key] = Storage(storage)
        pickler.links.append(StorageKey(storage._cdata))
    return node


class StorageKey(int):
    """The identity of a storage, where ids of objects are compared across units."""

    __slots__ = ()


class Shared:
    """Stands for a storage inside an array's memory."""

    __slots__ = ("offset", "owner", "size")

    def __init__(self, owner: Any, offset: int, size: int) -> None:
        self.owner = owner
        self.offset = offset
        self.size = size


def reduce_shared(pickler: CapturePickler, shared: Shared) -> Any:
    """Reduce such a storage."""
    return make_shared, (shared.owner, shared.offset, shared.size)


def make_shared(owner: Any, offset: int, size: int) -> Any:
    """Return the storage of a tensor over an array's memory (called by payloads)."""
    flat: Any = np.ndarray.__new__(np.ndarray, (size,), np.uint8, owner, offset, (1,))
    return torch.from_numpy(flat).untyped_storage()


def reduce_storage(pickler: CapturePickler, node: Storage) -> Any:
    """Reduce a storage to its bytes and its device."""
    storage = node.storage
    size, device = storage.nbytes(), str(storage.device)
    if storage.device.type == "meta":
        return make_empty, (size, device)
    if not size:
        return make_storage, (b"", device)
    if storage.device.type != "cpu":
        storage = storage.cpu()
        key = None
    else:
        key = (storage.data_ptr(), size)
    view = memoryview((ctypes.c_char * size).from_address(storage.data_ptr())).cast("B")
    pickler.extras[("kept", node.key)] = storage
    return make_storage, (pickler.emit(view, key), device)


def make_storage(data: bytes | int, device: str) -> Any:
    """Return a storage that owns its memory (called by payloads)."""
    source = loading.take_buffer(data)
    made = torch.empty(len(source), dtype=torch.uint8)
    if len(source):
        ctypes.memmove(made.data_ptr(), (ctypes.c_char * len(source)).from_buffer(_writable(source)), len(source))
    if device != "cpu":
        made = made.to(_present(device))
    return made.untyped_storage()


def _writable(source: Any) -> Any:
    view = memoryview(source)
    return bytearray(source) if view.readonly else view


def _present(device: str) -> str:
    """Return the device itself, or the nearest one that this process has."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise CannotTravel(f"A tensor lives on {device}, and this process has no GPU.")
        return device if int(index or 0) < torch.cuda.device_count() else "cuda:0"
    return device


def make_empty(size: int, device: str) -> Any:
    """Return a storage without contents (called by payloads)."""
    return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()


def make_array_view(
    storage: Any, offset: int, shape: Any, strides: Any, dtype: Any, writeable: bool, cls: Any
) -> Any:
    """Return a numpy array in a tensor's memory (called by payloads)."""
    flat = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    values: Any = np.ndarray.__new__(cls or np.ndarray, shape, dtype, flat, offset, strides)
    if not writeable:
        values.flags.writeable = False
    return values


def reduce_untyped(pickler: CapturePickler, storage: Any) -> Any:
    """Reduce a storage that a variable holds itself."""
    return storage_itself, (storage_node(pickler, torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)),)


def storage_itself(storage: Any) -> Any:
    """Return a storage (called by payloads)."""
    return storage


# -- tensors ---------------------------------------------------------------------------------------


def reduce_tensor(pickler: CapturePickler, tensor: Any) -> Any:
    """Reduce a tensor."""
    cls = type(tensor)
    pickler.module_needed("torch")
    if tensor.layout is not torch.strided or tensor.is_quantized or _wraps_others(cls):
        return _reduce_by_torch(pickler, tensor)
    node = storage_node(pickler, tensor)
    place = (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
    bits = (tensor.requires_grad, bool(tensor.is_conj()), bool(tensor.is_neg()))
    attributes = dict(vars(tensor)) if vars(tensor) else None
    if tensor.grad_fn is not None:
        return make_result, (node, *place, *bits[1:], _lost_graph(pickler, tensor)), (None, None, attributes), None, None, fill_tensor
    is_parameter = torch.nn.Parameter in cls.__mro__
    args = (None if cls is torch.Tensor else cls, is_parameter, node, *place, *bits)
    hooks = tensor._backward_hooks
    grad = tensor.grad if tensor.is_leaf else None
    return make_tensor, args, (grad, hooks, attributes), None, None, fill_tensor


def _wraps_others(cls: type) -> bool:
    """Tell whether a subclass dispatches in Python, so that its storage is not where its data are."""
    return "__torch_dispatch__" in {name for base in cls.__mro__ if base is not torch.Tensor and base is not object for name in vars(base)}


def _place(storage: Any, dtype: Any, offset: int, shape: Any, stride: Any, conj: bool, neg: bool) -> Any:
    tensor = torch.empty(0, dtype=dtype, device=storage.device)
    with torch.no_grad():
        tensor.set_(storage, offset, shape, stride)
    if conj:
        tensor = tensor.conj()
    return torch._neg_view(tensor) if neg else tensor


def make_tensor(
    cls: Any,
    is_parameter: bool,
    storage: Any,
    dtype: Any,
    offset: int,
    shape: Any,
    stride: Any,
    requires_grad: bool,
    conj: bool,
    neg: bool,
) -> Any:
    """Return a tensor (called by payloads)."""
    tensor = _place(storage, dtype, offset, shape, stride, conj, neg)
    if is_parameter:
        made = torch.nn.Parameter(tensor, requires_grad)
        if cls is not torch.nn.Parameter:
            made = torch.Tensor._make_subclass(cls, tensor, requires_grad)
        return made
    if cls is not None:
        return torch.Tensor._make_subclass(cls, tensor, requires_grad)
    if requires_grad:
        tensor.requires_grad_(True)
    return tensor


def fill_tensor(tensor: Any, state: tuple[Any, Any, Any]) -> None:
    """Give a tensor its gradient, hooks and attributes (called by payloads)."""
    grad, hooks, attributes = state
    if grad is not None:
        tensor.grad = grad
    if hooks:
        tensor._backward_hooks = hooks
    if attributes:
        vars(tensor).update(attributes)


def _reduce_by_torch(pickler: CapturePickler, tensor: Any) -> Any:
    """Reduce a sparse, quantized or wrapping tensor in torch's own file format."""
    if tensor.grad_fn is not None:
        raise CannotTravel("A tensor of this layout cannot be copied together with its graph.")
    target = io.BytesIO()
    torch.save(tensor.detach(), target)
    return load_by_torch, (target.getvalue(), tensor.requires_grad)


def load_by_torch(data: bytes, requires_grad: bool) -> Any:
    """Return a tensor from torch's own file format (called by payloads)."""
    tensor = torch.load(io.BytesIO(data), weights_only=False)
    return tensor.requires_grad_(True) if requires_grad else tensor


# -- graphs ----------------------------------------------------------------------------------------


def _lost_graph(pickler: CapturePickler, tensor: Any) -> tuple[Any, ...] | None:
    """Return the loss of a graph that is still of use; None for one that `backward` has freed."""
    if _freed(tensor.grad_fn):
        return None
    loss = pickler.note_loss(tensor, "Its autograd graph cannot be copied; its values were.", "tensor with an autograd graph")
    return tuple(getattr(loss, name) for name in Loss.__struct_fields__)


def _freed(node: Any) -> bool:
    """Tell whether a graph's saved tensors are gone."""
    queue, seen = [node], {node}
    while queue and len(seen) < GRAPH_NODES_MAX:
        current = queue.pop()
        for name in dir(current):
            if name.startswith("_raw_saved_"):
                try:
                    getattr(current, name)
                except RuntimeError:
                    return True
        for following, _ in current.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
    return False


class LostGraph(torch.autograd.Function):
    """The end of a graph that did not travel."""

    @staticmethod
    def forward(ctx: Any, values: Any, loss: Any) -> Any:
        """Pass the values through."""
        ctx.loss = loss
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:
        """Raise what became of the graph."""
        if ctx.loss is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they "
                "have already been freed)."
            )
        raise Loss(*ctx.loss).error()


def make_result(
    storage: Any, dtype: Any, offset: int, shape: Any, stride: Any, conj: bool, neg: bool, loss: Any
) -> Any:
    """Return a tensor whose graph was left behind (called by payloads)."""
    values = _place(storage, dtype, offset, shape, stride, conj, neg)
    apply: Any = LostGraph.apply
    return apply(values.requires_grad_(True), loss)


# -- optimizers and generators ---------------------------------------------------------------------


def reduce_optimizer(pickler: CapturePickler, optimizer: Any) -> Any:
    """Reduce an optimizer with all its attributes: schedulers hang on to more than its state."""
    return make_optimizer, (type(optimizer),), dict(vars(optimizer)), None, None, fill_optimizer


def make_optimizer(cls: Any) -> Any:
    """Return an optimizer without attributes (called by payloads)."""
    return cls.__new__(cls)


def fill_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Give an optimizer its attributes (called by payloads)."""
    vars(optimizer).update(state)
    optimizer._patch_step_function()


def reduce_generator(pickler: CapturePickler, generator: Any) -> Any:
    """Reduce a random generator; a default one by its device."""
    device = str(generator.device)
    if generator is torch.default_generator:
        pickler.unlinked.add(id(generator))
        return default_generator, ()
    return make_generator, (device, generator.get_state().numpy().tobytes())


def default_generator() -> Any:
    """Return the CPU's default generator (called by payloads)."""
    return torch.default_generator


def make_generator(device: str, state: bytes) -> Any:
    """Return a random generator (called by payloads)."""
    generator = torch.Generator(_present(device))
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


EXACT: dict[type, Any] = {
    torch.Tensor: reduce_tensor,
    torch.nn.Parameter: reduce_tensor,
    torch.UntypedStorage: reduce_untyped,
    torch.Generator: reduce_generator,
    Storage: reduce_storage,
    Shared: reduce_shared,
}
FAMILIES = [(torch.Tensor, reduce_tensor), (torch.optim.Optimizer, reduce_optimizer)]
