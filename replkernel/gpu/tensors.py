"""torch tensors: places in a storage, with `.grad`, hooks, attributes and the count of changes in place.

Law: imported only when the notebook has imported torch; a tensor keeps its device, and no code of a
subclass of the user's runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replkernel.gpu import batches, modules, optimizers, storages
from replkernel.gpu.graphs import lost_graph, make_result, name_of
from replkernel.gpu.layouts import is_plain, reduce_unusual
from replkernel.gpu.storages import place, storage_node
from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader
from replkernel.state.python.kinds import derives

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_parameter: Any = torch.nn.parameter
_NO_STATE = (None, None, None, None)
_set_versions = torch._C._autograd._unsafe_set_version_counter


def reduce_tensor(pickler: UnitContext, tensor: torch.Tensor) -> object:
    """Reduce a tensor, past the modes of the notebook's and the watch over what is off the GPU."""
    pickler.module_needed("torch")
    with torch._C.DisableTorchFunction():
        if isinstance(tensor, _parameter.UninitializedTensorMixin):
            return _reduce_uninitialized(pickler, tensor)
        return _reduce(pickler, tensor)


def _reduce(pickler: UnitContext, tensor: torch.Tensor) -> object:
    cls = type(tensor)
    if not is_plain(tensor):
        return reduce_unusual(pickler, tensor, (*_state_of(tensor), _version_of(tensor)), fill_tensor)
    node = storage_node(pickler, tensor)
    where = (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
    bits = (tensor.requires_grad, bool(tensor.is_conj()), bool(tensor.is_neg()))
    state, version = _state_of(tensor), _version_of(tensor)
    if tensor.grad_fn is not None:
        lost = lost_graph(pickler, tensor)
        made = (node, *where, *bits[1:], lost, name_of(tensor.grad_fn))
        kept = (_retained(tensor), None, state[2], None, version)
        return make_result, made, kept, None, None, fill_tensor
    base = tensor._base if cls is torch.Tensor else None
    if base is not None and not _may_be_base(base, tensor):
        base = None
    if base is not None:
        version = None  # its base's
    rest = ((*state, version), None, None, fill_tensor) if version or state != _NO_STATE else ()
    if tensor.is_inference():
        return make_inference, (None if cls is torch.Tensor else cls, node, *where, *bits[1:]), *rest
    if base is not None:
        return make_view, (base, *where[1:], *bits), *rest
    is_parameter = derives(cls, torch.nn.Parameter)
    return make_tensor, (None if cls is torch.Tensor else cls, is_parameter, node, *where, *bits), *rest


def _state_of(tensor: torch.Tensor) -> tuple[Any, Any, Any, Any]:
    """Return what a tensor has beside its values: gradient, hooks, attributes, hooks after accumulation."""
    attributes = dict(vars(tensor)) if vars(tensor) else None
    if not tensor.is_leaf:
        return None, None, attributes, None
    return tensor.grad, tensor._backward_hooks, attributes, tensor._post_accumulate_grad_hooks


def _version_of(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was changed in place; None for one that does not count."""
    return None if tensor.is_inference() else int(tensor._version)


def _retained(tensor: torch.Tensor) -> object:
    """Return the gradient that a result was told to retain."""
    return tensor.grad if tensor.retains_grad else None


def _may_be_base(base: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Tell whether a tensor can be taken from its base again as a view of it."""
    return (
        type(base) is torch.Tensor
        and is_plain(base)
        and base.dtype == tensor.dtype
        and not (base.requires_grad or base.is_conj() or base.is_neg() or base.is_inference())
        and base.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    )


@loader("torch:make_view")
def make_view(
    base: torch.Tensor,
    offset: int,
    shape: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    conj: bool,
    neg: bool,
) -> Any:
    """Return a view of another tensor (called by payloads)."""
    with torch.enable_grad():
        tensor = torch.as_strided(base, shape, stride, offset)
        tensor = tensor.conj() if conj else tensor
        tensor = torch._neg_view(tensor) if neg else tensor
    return tensor.requires_grad_(True) if requires_grad else tensor


@loader("torch:make_inference")
def make_inference(
    cls: type[Any] | None,
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: Sequence[int],
    stride: Sequence[int],
    conj: bool,
    neg: bool,
) -> Any:
    """Return a tensor that was made in inference mode (called by payloads)."""
    with torch.inference_mode():
        tensor = place(storage, dtype, offset, shape, stride, conj, neg)
        return tensor if cls is None else torch.Tensor._make_subclass(cls, tensor)


@loader("torch:make_tensor")
def make_tensor(
    cls: Any,
    is_parameter: bool,
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: Sequence[int],
    stride: Sequence[int],
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


@loader("torch:fill_tensor")
def fill_tensor(tensor: torch.Tensor, state: tuple[Any, ...]) -> None:
    """Give a tensor its gradient, hooks, attributes and version (called by payloads)."""
    grad, hooks, attributes, accumulated, version = (*state, None, None)[:5]
    with torch._C.DisableTorchFunctionSubclass():
        if grad is not None:
            if not tensor.is_leaf:
                tensor.retain_grad()
            tensor.grad = grad
        if hooks is not None:
            tensor._backward_hooks = hooks
        if accumulated is not None:
            tensor._post_accumulate_grad_hooks = accumulated
        if attributes:
            vars(tensor).update(attributes)
        if version is not None and tensor._version != version:
            _set_versions((tensor,), (version,))


def _reduce_uninitialized(pickler: UnitContext, tensor: torch.Tensor) -> object:
    """Reduce a parameter or buffer of a lazy module that has no shape yet."""
    storages.needs(pickler, str(tensor.device))
    kind = (tensor.requires_grad, str(tensor.device), tensor.dtype)
    attributes = dict(vars(tensor)) if vars(tensor) else None
    rest = ((None, None, attributes, None, None), None, None, fill_tensor) if attributes else ()
    return make_uninitialized, (type(tensor), *kind), *rest


@loader("torch:make_uninitialized")
def make_uninitialized(cls: type[Any], requires_grad: bool, device: str, dtype: object) -> object:
    """Return a parameter or buffer without a shape (called by payloads)."""
    return cls(requires_grad=requires_grad, device=device, dtype=dtype)


EXACT: dict[type, Any] = {
    **storages.EXACT,
    **optimizers.EXACT,
    **modules.EXACT,
    torch.Tensor: reduce_tensor,
    torch.nn.Parameter: reduce_tensor,
}
FAMILIES = [
    (torch.Tensor, reduce_tensor),
    *optimizers.FAMILIES,
    *modules.FAMILIES,
    *batches.FAMILIES,
]
TESTS = modules.TESTS
