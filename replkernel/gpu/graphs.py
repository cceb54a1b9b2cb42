"""Graphs of autograd: they cannot travel; their results do, and `backward` says what was lost.

Law: a graph that `backward` has freed is no loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from replkernel.gpu.storages import place
from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader
from replkernel.state.tombstone import Loss

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

GRAPH_NODES_MAX = 500
"""No more nodes of an autograd graph are asked whether it was freed."""


def lost_graph(pickler: UnitContext, tensor: Any) -> tuple[Any, ...] | None:
    """Return the loss of a graph that is still of use; None for one that `backward` has freed."""
    if is_lost(tensor.grad_fn):
        return _lost_before(pickler, tensor.grad_fn.loss)
    if _freed(tensor.grad_fn):
        return None
    loss = pickler.note_loss(
        tensor, "Its autograd graph cannot be copied; its values were.", "tensor with an autograd graph"
    )
    return tuple(getattr(loss, name) for name in Loss.__struct_fields__)


def is_lost(node: object) -> bool:
    """Tell whether a node stands for a graph that did not travel to this replica."""
    forward = getattr(node, "_forward_cls", None)
    return isinstance(forward, type) and issubclass(forward, LostGraph)


def name_of(node: object) -> tuple[str, str]:
    """Return the module and the name of a node's class, as a tensor that is printed shows it."""
    return type(node).__module__, type(node).__name__


def _lost_before(pickler: UnitContext, loss: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return the loss of a graph that did not travel to this replica: it stays with whoever has it."""
    if loss is not None:
        pickler.touched = True
        pickler.book.losses.append(Loss(*loss))
    return loss


def _freed(node: Any) -> bool:
    """Tell whether a graph's saved tensors are gone, here or where a part of it was left behind."""
    queue, seen = [node], {node}
    while queue and len(seen) < GRAPH_NODES_MAX:
        current = queue.pop()
        if is_lost(current) and current.loss is None:
            return True
        if any(_is_gone(current, name) for name in dir(current) if name.startswith("_raw_saved_")):
            return True
        for following, _ in current.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
    return False


def _is_gone(node: object, name: str) -> bool:
    """Tell whether one saved tensor was freed; one that was None from the start is there."""
    try:
        saved = getattr(node, name)
        if isinstance(saved, (list, tuple)) or saved.data is not None or saved.unpack_hook is not None:
            return False
        getattr(node, name.removeprefix("_raw"))
    except RuntimeError:
        return True
    except AttributeError:
        return False
    return False


class LostGraph(torch.autograd.Function):
    """The end of a graph that did not travel."""

    @staticmethod
    def forward(ctx: Any, start: object, make: Callable[[], Any], loss: object) -> object:
        """Return the values, which are no view of the graph's new start: they may be changed in place."""
        ctx.loss = loss
        return make()

    @staticmethod
    def backward(ctx: Any, *_gradients: object) -> object:
        """Raise what became of the graph."""
        if ctx.loss is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors "
                "after they have already been freed)."
            )
        raise Loss(*ctx.loss).error()


@functools.cache
def _lost_graph_named(module: str, name: str) -> Any:
    """Return a `LostGraph` whose nodes are called as those of another operation."""
    kind: Any = type(LostGraph)
    made = kind(LostGraph.__name__, (LostGraph,), {})
    node = made._backward_cls
    node.__module__, node.__name__, node.__qualname__ = module, name, name
    return made


@loader("torch:make_result")
def make_result(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: Sequence[int],
    stride: Sequence[int],
    conj: bool,
    neg: bool,
    loss: object,
    name: tuple[str, str],
) -> object:
    """Return a tensor whose graph was left behind (called by payloads)."""
    make = functools.partial(place, storage, dtype, offset, shape, stride, conj, neg)
    start = torch.empty(0, dtype=dtype, device=storage.device, requires_grad=True)
    with torch.enable_grad():
        return _lost_graph_named(*name).apply(start, make, loss)
