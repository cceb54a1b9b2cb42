"""Every storage on a device that the process's objects lead to: tensors, their gradients, what graphs saved.

Law: no user code runs and no property of a user's class is read. What is not found stays on the device, and
the backend, which compares with its allocator, says so: it is never emptied unseen.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

from replkernel.gpu.torch_library import torch
from replkernel.state.python.kinds import lineage

NODES_MAX = 5_000_000
"""No more nodes of autograd graphs are looked at; with more, something stays unfound and is named."""
_SPARSE = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_coo: ("_indices", "_values"),
}


def storages(wanted: Callable[[Any], bool]) -> dict[int, Any]:
    """Return the storages that `wanted` says yes to, each once, by their identity."""
    found: dict[int, Any] = {}
    roots: list[Any] = []
    with torch._C.DisableTorchFunction():
        for value in _live():
            if type(value) is torch.UntypedStorage:
                _take(found, value, wanted)
                continue
            _take_tensor(found, value, wanted, roots)
        for saved in saved_by(roots):
            _take_tensor(found, saved, wanted, [])
    return found


def _live() -> Iterator[Any]:
    """Yield all tensors and storages that have a Python object."""
    kinds: dict[int, bool] = {}
    held: list[type] = []
    wanted = (torch.Tensor, torch.UntypedStorage)
    for value in gc.get_objects():
        kind = type(value)
        known = kinds.get(id(kind))
        if known is None:
            held.append(kind)
            known = kinds[id(kind)] = any(base in wanted for base in lineage(kind))
        if known:
            yield value


def _take_tensor(
    found: dict[int, Any], tensor: torch.Tensor, wanted: Callable[[Any], bool], roots: list[Any]
) -> None:
    if tensor.grad_fn is not None:
        roots.append(tensor.grad_fn)
    elif tensor.grad is not None:
        _take_parts(found, tensor.grad, wanted)
    _take_parts(found, tensor, wanted)


def _take_parts(found: dict[int, Any], tensor: torch.Tensor, wanted: Callable[[Any], bool]) -> None:
    for storage in parts(tensor):
        _take(found, storage, wanted)


def parts(tensor: torch.Tensor) -> Iterator[Any]:
    """Yield the storages in which a tensor's own bytes lie."""
    names = _SPARSE.get(tensor.layout)
    if names is not None:
        plain = tensor.detach()
        for name in names:
            yield getattr(plain, name)().untyped_storage()
        return
    try:
        yield torch.Tensor.untyped_storage(tensor)
    except (NotImplementedError, RuntimeError):  # A wrapper, whose tensors are found by themselves.
        return


def _take(found: dict[int, Any], storage: torch.UntypedStorage, wanted: Callable[[Any], bool]) -> None:
    if storage._cdata not in found and storage.nbytes() and wanted(storage):
        found[storage._cdata] = storage


def saved_by(roots: list[Any]) -> Iterator[Any]:
    """Yield the tensors that graphs have saved for `backward`, and the leaves that they lead to."""
    waiting, seen = list(roots), set(roots)
    while waiting and len(seen) < NODES_MAX:
        node = waiting.pop()
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                yield from _data_of(node, name)
        leaf = getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None
        if leaf is not None:
            yield leaf
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def _data_of(node: object, name: str) -> Iterator[Any]:
    try:
        saved = getattr(node, name)
        for each in saved if isinstance(saved, (list, tuple)) else (saved,):
            if each.data is not None:
                yield each.data
    except RuntimeError:  # Freed by `backward`.
        return
