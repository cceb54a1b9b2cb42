"""torch tensors that are not one strided block: sparse, nested and quantized ones by their parts, wrappers by
what they wrap.

Law: parts keep sharing memory with whoever else holds them; other layouts travel in torch's own file format.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replkernel.gpu.in_place import anything_parked, is_off
from replkernel.gpu.jagged import is_jagged, reduce_jagged
from replkernel.gpu.reached import parts
from replkernel.gpu.storages import place, storage_node
from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import derives, key_of, kind_of, module_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_COMPRESSED: dict[Any, tuple[str, str]] = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is a place in one storage."""
    unusual = tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested
    return not unusual and not wraps(tensor)


def wraps(tensor: object) -> bool:
    """Tell whether a tensor's data are in other tensors that it holds, as `__torch_dispatch__` allows."""
    cls = type(tensor)
    return key_of(cls) not in (torch.Tensor, torch.nn.Parameter) and any(
        "__torch_dispatch__" in _DICT.__get__(base)
        for base in _MRO.__get__(cls)
        if not derives(torch.Tensor, base)
    )


def reduce_unusual(pickler: UnitContext, tensor: torch.Tensor, state: object, fill: object) -> object:
    """Reduce a tensor of another layout; `state` is what `fill` gives back to it."""
    if tensor.grad_fn is not None:
        raise CannotTravel("A tensor of this layout cannot be copied together with its graph.")
    needs_grad = tensor.requires_grad
    plain = tensor.detach() if needs_grad and not wraps(tensor) else tensor
    rest = (state, None, None, fill)
    if is_jagged(type(tensor)):
        return reduce_jagged(tensor, state, fill)
    if wraps(tensor):
        return _reduce_wrapper(pickler, tensor, rest)
    if kind_of(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return _reduce_by_torch(tensor)
    is_parameter = type(tensor) is torch.nn.Parameter
    if tensor.layout is torch.sparse_coo:
        parts = (plain._indices(), plain._values())
        return make_coo, (*parts, tuple(plain.shape), plain.is_coalesced(), needs_grad, is_parameter), *rest
    if tensor.is_quantized and (scale := _scale_of(plain)) is not None:
        where = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
        return make_quantized, (storage_node(pickler, tensor), tensor.dtype, *where, *scale), *rest
    names = _COMPRESSED.get(tensor.layout)
    if names is None and tensor.is_nested and tensor.layout is torch.strided:
        sizes = (plain._nested_tensor_size(), plain._nested_tensor_strides())
        blocks = (storage_node(pickler, tensor), tensor.dtype, *sizes, plain._nested_tensor_storage_offsets())
        return make_nested, (*blocks, needs_grad, is_parameter), *rest
    if names is None:
        return _reduce_by_torch(tensor)
    compressed = (getattr(plain, names[0])(), getattr(plain, names[1])(), plain.values())
    return make_compressed, (*compressed, tuple(plain.shape), plain.layout, needs_grad, is_parameter), *rest


def _finished(tensor: torch.Tensor, needs_grad: bool, is_parameter: bool) -> object:
    if is_parameter:
        return torch.nn.Parameter(tensor, needs_grad)
    return tensor.requires_grad_(True) if needs_grad else tensor


@loader("torch:make_coo")
def make_coo(
    indices: torch.Tensor,
    values: torch.Tensor,
    shape: tuple[int, ...],
    coalesced: bool,
    needs_grad: bool,
    is_parameter: bool,
) -> object:
    """Return a sparse tensor over its indices and values (called by payloads)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.sparse_coo_tensor(
            indices,
            values,
            shape,
            device=values.device,
            check_invariants=False,
            is_coalesced=coalesced or None,
        )
    return _finished(made, needs_grad, is_parameter)


@loader("torch:make_compressed")
def make_compressed(
    outer: torch.Tensor,
    inner: torch.Tensor,
    values: torch.Tensor,
    shape: tuple[int, ...],
    layout: torch.layout,
    needs_grad: bool,
    is_parameter: bool,
) -> object:
    """Return a compressed sparse tensor over its parts (called by payloads)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.sparse_compressed_tensor(
            outer, inner, values, shape, layout=layout, device=values.device, check_invariants=False
        )
    return _finished(made, needs_grad, is_parameter)


@loader("torch:make_nested")
def make_nested(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    sizes: torch.Tensor,
    strides: torch.Tensor,
    offsets: torch.Tensor,
    needs_grad: bool,
    is_parameter: bool,
) -> Any:
    """Return a nested tensor over the storage of all its tensors (called by payloads)."""
    values = place(storage, dtype, 0, (storage.nbytes() // dtype.itemsize,), (1,), False, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its interface may change
        made = torch._nested_view_from_buffer(values, sizes, strides, offsets).data  # no view
    return _finished(made, needs_grad, is_parameter)


def _scale_of(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Return a quantized tensor's scale, zero and axis; None for a scheme that is not known."""
    if tensor.qscheme() == torch.per_tensor_affine:
        return tensor.q_scale(), tensor.q_zero_point(), None
    if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        return tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), tensor.q_per_channel_axis()
    return None


@loader("torch:make_quantized")
def make_quantized(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: Sequence[int],
    stride: Sequence[int],
    scale: Any,
    zero: Any,
    axis: int | None,
) -> object:
    """Return a quantized tensor at a place in a storage (called by payloads)."""
    kind: dict[str, Any] = {"dtype": dtype, "device": storage.device}
    if axis is None:
        made = torch._empty_affine_quantized(shape, scale=scale, zero_point=zero, **kind)
    else:
        made = torch._empty_per_channel_affine_quantized(
            shape, scales=scale, zero_points=zero, axis=axis, **kind
        )
    return made.set_(storage, offset, shape, stride)


def _reduce_wrapper(pickler: UnitContext, tensor: torch.Tensor, rest: Any) -> object:
    """Reduce a wrapper of the notebook's by its attributes; those of libraries pickle in their own way."""
    cls = type(tensor)
    if module_of(cls) != pickler.world.seeds.main_name:
        return _reduce_by_torch(tensor)
    with torch._C._DisableTorchDispatch():
        outside = (tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
        kind = (tensor.dtype, tensor.layout, str(tensor.device), tensor.requires_grad)
        stored = _has_data(tensor)
    if stored:
        raise CannotTravel("A tensor with __torch_dispatch__ that holds data itself cannot be copied.")
    return make_wrapper, (cls, *outside, *kind), *rest


def _has_data(tensor: torch.Tensor) -> bool:
    try:
        return bool(tensor.untyped_storage().data_ptr())
    except RuntimeError:
        return False


@loader("torch:make_wrapper")
def make_wrapper(
    cls: type[Any],
    shape: tuple[int, ...],
    stride: Sequence[int],
    offset: int,
    dtype: torch.dtype,
    layout: torch.layout,
    device: str,
    needs_grad: bool,
) -> object:
    """Return a wrapper around nothing yet (called by payloads)."""
    return torch.Tensor._make_wrapper_subclass(
        cls,
        shape,
        strides=stride,
        storage_offset=offset,
        dtype=dtype,
        layout=layout,
        device=torch.device(device),
        requires_grad=needs_grad,
    )


def _reduce_by_torch(tensor: torch.Tensor) -> object:
    """Reduce a tensor to torch's own file format, which reads the bytes where they were."""
    if anything_parked() if wraps(tensor) else any(is_off(each) for each in parts(tensor)):
        raise CannotTravel("A tensor of this layout cannot be copied while it is off the GPU.")
    target = io.BytesIO()
    torch.save(tensor.detach(), target)
    return load_by_torch, (target.getvalue(), tensor.requires_grad)


@loader("torch:load_by_torch")
def load_by_torch(data: bytes, requires_grad: bool) -> object:
    """Return a tensor from torch's own file format (called by payloads)."""
    tensor = torch.load(io.BytesIO(data), weights_only=False)
    return tensor.requires_grad_(True) if requires_grad else tensor
