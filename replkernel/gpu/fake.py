"""The backend of pretended GPUs: tensors in host memory that pose as lying on a device.

A notebook puts tensors there with `put`, or computes inside `posing`; from then on they go through all that
tensors on a GPU go through, by the same code. Law: what poses is known by its storage; no numpy array may
look into one (on a real GPU none could).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from torch.multiprocessing import reductions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from replkernel.gpu import first_use, reached
from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.gpu.fake_usage import MEMORY_BYTES, PREFIX, write_usage
from replkernel.gpu.in_place import Parking, in_use
from replkernel.gpu.torch_library import torch
from replkernel.gpu.vram import pretended_limit

_weak_reference: Any = reductions.StorageWeakRef
_Mode: Any = TorchDispatchMode


class FakeBackend:
    """One process's pretended GPUs."""

    name = "fake"

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._gpus: tuple[str, ...] = ()
        self._memory_bytes = memory_bytes
        self.limit = pretended_limit()
        """So much of each device may be taken; 0: all of it."""
        self._stays = False
        self._posing: dict[int, tuple[Any, int]] = {}
        self._told: dict[str, int] = {}
        """What is seen from outside."""
        self._parking = Parking()
        in_use(self._parking)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The UUIDs that the devices stand for."""
        return self._gpus

    @property
    def suspended(self) -> bool:
        """Whether state is off the devices."""
        return bool(self._parking)

    def bind(self, gpus: tuple[str, ...]) -> str:
        """Have the devices stand for these GPUs."""
        if gpus == self._gpus:
            return ""
        if self.bytes_held():
            return f"tensors lie on {', '.join(self._gpus)}"
        bound = self.bound_to_others(gpus)
        if not bound:
            self._gpus = gpus
        return bound

    def stay(self) -> None:
        """Keep the GPUs that are used first, as CUDA does."""
        self._stays = True
        if not self._gpus:
            self._gpus = _visible()

    @property
    def in_use(self) -> bool:
        """Whether something lies on the devices, or is off them, or they are settled.

        It is asked around each cell: what nobody has any more is seen to be gone by then.
        """
        if self._told != self._held():
            self._tell()
        return self.suspended or bool(self.bytes_held()) or bool(self._stays and self._gpus)

    def bound_to_others(self, gpus: tuple[str, ...]) -> str:
        """Say which GPUs were used first, if others cannot be used any more."""
        if not self._stays or not self._gpus or gpus == self._gpus:
            return ""
        return f"CUDA was started here with {', '.join(self._gpus)}"

    @property
    def bound(self) -> bool:
        """Whether it was told to keep its GPUs, as CUDA does."""
        return self._stays

    # -- the devices' memory --------------------------------------------------------------------------

    def adopt(self, tensor: torch.Tensor, index: int) -> None:
        """Have a tensor's storage lie on a device."""
        self._check(index)
        storage = torch.Tensor.untyped_storage(tensor)
        if not storage.resizable() or storage.device.type != "cpu":
            raise RuntimeError("A simulated GPU holds what torch allocated itself in host memory.")
        if storage._cdata in self._posing and not self._posing[storage._cdata][0].expired():
            return
        room = (self.limit or self._memory_bytes) - self._held_on(index)
        if storage.nbytes() > room:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {storage.nbytes()} bytes. Simulated GPU {index} has "
                f"{max(0, room)} bytes free."
            )
        self._posing[storage._cdata] = (_weak_reference(storage), index)
        self._tell()

    def _check(self, index: int) -> None:
        settled = self._stays and self._gpus
        if not self.bytes_held() and not _visible():
            first_use.reached()
        if not settled and not self._parking and not self.bytes_held():
            self._gpus = _visible()
        if index >= len(self._gpus):
            none = "No CUDA GPUs are available"
            count = len(self._gpus)
            raise RuntimeError(f"CUDA error: invalid device ordinal {index} of {count}" if count else none)

    def poses(self, storage: torch.UntypedStorage) -> bool:
        """Tell whether a storage lies on a device."""
        known = self._posing.get(storage._cdata)
        return known is not None and not known[0].expired()

    def bytes_held(self) -> int:
        """Return how many bytes lie on the devices."""
        return sum(self._held_on(index) for index in range(len(self._gpus)))

    def _held_on(self, index: int) -> int:
        self._forget_the_dead()
        return sum(_bytes_of(ref) for ref, place in self._posing.values() if place == index)

    def _forget_the_dead(self) -> None:
        for key in [key for key, (ref, _) in self._posing.items() if ref.expired()]:
            del self._posing[key]

    def _held(self) -> dict[str, int]:
        return {gpu: self._held_on(index) for index, gpu in enumerate(self._gpus)}

    def _tell(self) -> None:
        self._told = self._held()
        for gpu, count in self._told.items():
            write_usage(gpu, count, os.environ)

    def bytes_off(self) -> int:
        """Return how many bytes wait in host memory."""
        self._parking.forget_the_dead()
        return self._parking.bytes

    # -- off and back ---------------------------------------------------------------------------------

    @property
    def locked(self) -> bool:
        """Whether the driver has the state: there is none."""
        return False

    def suspend(self, busy: str = "", *, settled: bool = False) -> Outcome:
        """Move everything that poses off the devices, in place."""
        if busy:
            return Kept(busy)
        began = time.monotonic()
        self._forget_the_dead()
        found = reached.storages(self.poses)
        unfound = [ref for key, (ref, _) in self._posing.items() if key not in found and _bytes_of(ref)]
        if unfound:
            count = sum(_bytes_of(ref) for ref in unfound)
            return Kept(f"{count} bytes on the GPU belong to nothing that Python knows of")
        try:
            moved = self._parking.park(found.values())
        except (RuntimeError, MemoryError) as error:
            return Kept(f"the tensors on the GPU could not be moved to host memory: {error}")
        self._tell()
        return Moved(moved, time.monotonic() - began)

    def resume(self, gpus: tuple[str, ...]) -> Outcome:
        """Move everything back, onto the devices of these GPUs."""
        began = time.monotonic()
        why = self._cannot_resume_on(gpus)
        if why:
            return Kept(why)
        before, self._gpus = self._gpus, gpus
        try:
            moved = self._parking.unpark()
        except (RuntimeError, MemoryError) as error:
            self._gpus = before
            return Kept(f"the tensors could not be moved back to the GPU: {error}")
        self._tell()
        return Moved(moved, time.monotonic() - began)

    def _cannot_resume_on(self, gpus: tuple[str, ...]) -> str:
        self._forget_the_dead()
        if gpus != self._gpus and self.bytes_held():
            return f"tensors lie on {', '.join(self._gpus)}"
        bound = self.bound_to_others(gpus)
        if bound:
            return bound
        needed = 1 + max((index for _, index in self._posing.values()), default=-1)
        if needed > len(gpus):
            lie = f"its tensors lie on {needed} GPUs, and the lease has {len(gpus)}"
            return f"{lie}: ask for {needed} (`%%gpu {needed}`)"
        for index in range(needed):
            size = sum(parked.size for parked in self._parked_on(index))
            if size > self._memory_bytes:
                return f"CUDA out of memory: {size} bytes do not fit on {gpus[index]}"
        return ""

    def _parked_on(self, index: int) -> Iterator[Any]:
        for ref, place in self._posing.values():
            storage = _of(ref)
            parked = None if storage is None else self._parking.of(storage)
            if place == index and parked is not None:
                yield parked


def _visible() -> tuple[str, ...]:
    """Return the GPUs that the process sees as it starts to use them."""
    return tuple(
        word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.startswith(PREFIX)
    )


def _of(ref: Any) -> Any:
    return torch.UntypedStorage._new_with_weak_ptr(ref.cdata)


def _bytes_of(ref: object) -> int:
    storage = _of(ref)
    return 0 if storage is None else int(storage.nbytes())


_backends: list[FakeBackend] = []


def fake_backend() -> FakeBackend:
    """Return this process's pretended GPUs."""
    if not _backends:
        _backends.append(FakeBackend())
    return _backends[0]


def stay() -> None:
    """Have this process keep its pretended GPUs from now on, as CUDA keeps those it was started with."""
    fake_backend().stay()


def index_of(storage: torch.UntypedStorage) -> int | None:
    """Return the device on which a storage of this process poses; None for one that does not."""
    known = _backends[0]._posing.get(storage._cdata) if _backends else None
    return None if known is None or known[0].expired() else known[1]


def adopted(tensor: torch.Tensor, index: int) -> Any:
    """Return a rebuilt tensor on the device on which it was, or on the nearest that this process has."""
    backend = fake_backend()
    backend.adopt(tensor, index if index < len(_visible()) else 0)
    return tensor


def put(value: Any, device: str = "cuda:0") -> object:
    """Put a tensor, or a module's parameters and buffers, on a pretended GPU; return it there."""
    index = _index(device)
    backend = fake_backend()
    if isinstance(value, torch.nn.Module):
        for tensor in [*value.parameters(), *value.buffers()]:
            backend.adopt(tensor, index)
        return value
    with torch.no_grad():
        made = value.detach().clone()
    backend.adopt(made, index)
    return made.requires_grad_(value.requires_grad)


@contextlib.contextmanager
def posing(device: str = "cuda:0") -> Iterator[None]:
    """Have everything that is computed inside lie on a pretended GPU."""
    index = _index(device)
    fake_backend()._check(index)
    with _Posing(index):
        yield


def _index(device: str) -> int:
    kind, _, number = device.partition(":")
    if kind != "cuda":
        raise RuntimeError(f"Simulated GPUs are cuda devices, not {device}.")
    return int(number or 0)


class _Posing(_Mode):  # type: ignore[misc]
    """Adopts the results of every operation."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        out = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, lambda tensor: fake_backend().adopt(tensor, self._index), out)
        return out
