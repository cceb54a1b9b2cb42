"""torch tensors: places in a storage, with `.grad`, hooks and attributes.

Law: imported only when the notebook has imported torch; a tensor keeps its device.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from replkernel.gpu import optimizers, storages
from replkernel.gpu.graphs import lost_graph, make_result
from replkernel.gpu.storages import place, storage_node
from replkernel.gpu.torch_library import torch
from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_tensor(pickler: CapturePickler, tensor: Any) -> Any:
    """Reduce a tensor."""
    cls = type(tensor)
    pickler.module_needed("torch")
    if tensor.layout is not torch.strided or tensor.is_quantized or _wraps_others(cls):
        return _reduce_by_torch(pickler, tensor)
    node = storage_node(pickler, tensor)
    where = (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
    bits = (tensor.requires_grad, bool(tensor.is_conj()), bool(tensor.is_neg()))
    attributes = dict(vars(tensor)) if vars(tensor) else None
    if tensor.grad_fn is not None:
        return (
            make_result,
            (node, *where, *bits[1:], lost_graph(pickler, tensor)),
            (None, None, attributes),
            None,
            None,
            fill_tensor,
        )
    is_parameter = torch.nn.Parameter in cls.__mro__
    args = (None if cls is torch.Tensor else cls, is_parameter, node, *where, *bits)
    hooks = tensor._backward_hooks
    grad = tensor.grad if tensor.is_leaf else None
    return make_tensor, args, (grad, hooks, attributes), None, None, fill_tensor


_STOCK_BASES = torch.Tensor.__mro__


def _wraps_others(cls: type) -> bool:
    """Tell whether a subclass dispatches in Python, so that its storage is not where its data are."""
    return "__torch_dispatch__" in {
        name for base in cls.__mro__ if base is not torch.Tensor and base is not object for name in vars(base)
    }


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
    tensor = place(storage, dtype, offset, shape, stride, conj, neg)
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


EXACT: dict[type, Any] = {
    **storages.EXACT,
    **optimizers.EXACT,
    torch.Tensor: reduce_tensor,
    torch.nn.Parameter: reduce_tensor,
}
FAMILIES = [(torch.Tensor, reduce_tensor), *optimizers.FAMILIES]
