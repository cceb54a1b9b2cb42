"""Stops a cell that touches state which is off the GPU, before torch reads memory that is not there.

While tensors are parked, each call of torch's functions passes here. Law: shapes, types and devices may be
asked for; whatever would read or write bytes first calls `needed`; what a cell makes on a GPU is a first use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from replkernel.errors import StateSuspended
from replkernel.gpu import first_use
from replkernel.gpu.in_place import is_off
from replkernel.gpu.reached import parts, saved_by
from replkernel.gpu.torch_library import torch

LOOKS = frozenset(
    {
        "dim",
        "size",
        "stride",
        "numel",
        "nelement",
        "storage_offset",
        "is_floating_point",
        "is_complex",
        "is_contiguous",
    }
    | {"element_size", "ndimension", "get_device", "is_same_size", "__len__", "__hash__"}
)
"""What asks for nothing but the shape."""
OURS = LOOKS | frozenset(
    {"is_conj", "is_neg", "is_inference", "untyped_storage", "detach", "is_coalesced", "_indices", "_values"}
    | {"crow_indices", "col_indices", "ccol_indices", "row_indices", "values"}
)
"""What captures ask for between cells as well: they read the bytes where they are."""
GRAPHS = frozenset({"backward", "grad", "ones_like"})
"""What goes back through a graph, or comes just before that (in `torch.autograd.backward`)."""
DEPTH_MAX = 8


class Watching(TorchFunctionMode):
    """Calls `needed` before a function that would reach parked bytes."""

    def __init__(self, needed: Callable[[], None]) -> None:
        super().__init__()
        self._needed = needed
        self.in_cell = False
        self.asks = self.rests = False
        """Whether `needed` is being called, and whether there is nothing left to watch over."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.rests or self.asks:
            return func(*args, **kwargs)
        if name not in (LOOKS if self.in_cell else OURS) and name != "__get__":
            graphs = name in GRAPHS
            if _reaches(args, 0, graphs) or _reaches(kwargs.values(), 0, graphs):
                self._ask(self._needed)
            elif self.in_cell and (name == "cuda" or _names_gpu(args[1:]) or _names_gpu(kwargs.values())):
                self._ask(first_use.reached)
        return func(*args, **kwargs)

    def _ask(self, whom: Callable[[], None]) -> None:
        self.asks = True
        try:
            whom()
        finally:
            self.asks = False


def refuse() -> None:
    """Say that the bytes are not there."""
    raise StateSuspended(
        "This tensor's bytes were moved off the GPU, because somebody else needed it: they come back with "
        "the next cell that runs with a GPU (`%%gpu` at its top)."
    )


def watch_this_thread() -> None:
    """Have everything refused on this thread, from now on, that would read parked bytes."""
    if not getattr(_watched, "done", False):
        enter(Watching(refuse))
        _watched.done = True


_watched = threading.local()


def enter(mode: Watching) -> None:
    """Put a mode on, on this thread, below those of a cell that runs: each of them takes off the topmost.

    That of the default device takes off the one at the bottom: it stays there.
    """
    overrides: Any = torch.overrides
    above = [overrides._pop_mode() for _ in range(overrides._len_torch_function_stack())]
    bottom = [above.pop()] if above and isinstance(above[-1], DeviceContext) else []
    for each in (*bottom, mode, *reversed(above)):
        overrides._push_mode(each)


def leave(mode: Watching) -> None:
    """Take a mode off, wherever the notebook's own modes have put it."""
    overrides: Any = torch.overrides
    above = []
    while overrides._len_torch_function_stack():
        top = overrides._pop_mode()
        if top is mode:
            break
        above.append(top)
    for each in reversed(above):
        overrides._push_mode(each)


def _names_gpu(values: Iterable[object]) -> bool:
    """Tell whether one of a function's arguments says that something is to be made on a GPU."""
    return any(
        value.type == "cuda" if isinstance(value, torch.device) else _is_gpu_word(value) for value in values
    )


def _is_gpu_word(value: object) -> bool:
    return isinstance(value, str) and value.startswith("cuda")


def _reaches(values: Iterable[object], depth: int, graphs: bool) -> bool:
    """Tell whether bytes that are parked belong to one of the values, or to the graph behind it."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if _is_parked(value, graphs):
                return True
        elif depth < DEPTH_MAX and isinstance(value, (list, tuple, set)):
            if _reaches(value, depth + 1, graphs):
                return True
        elif depth < DEPTH_MAX and isinstance(value, dict) and _reaches(value.values(), depth + 1, graphs):
            return True
    return False


def _is_parked(tensor: torch.Tensor, graphs: bool) -> bool:
    with torch._C.DisableTorchFunction():
        saved = saved_by([tensor.grad_fn]) if graphs and tensor.grad_fn is not None else ()
        return any(is_off(storage) for each in (tensor, *saved) for storage in parts(each))
