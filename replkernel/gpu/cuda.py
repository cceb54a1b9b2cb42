"""The backend of real GPUs: by the driver's checkpoint, else torch's storages to pinned host memory in place.

The driver takes everything off, of any library, the context too; torch leaves the context (some hundred MB a
device) with streams, events and generators: after a suspension they are as they were. Law: first the driver,
then torch, and where both fail the lease is kept, and both reasons are told; what torch does not own, or
Python cannot reach, is never left without its bytes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from typing import Any

from replkernel.gpu import family, reached, seen, torch_state
from replkernel.gpu.backend import CONTEXT_BYTES, Kept, Moved, Outcome, bytes_in_words
from replkernel.gpu.device_buffer import DeviceBuffer
from replkernel.gpu.driver import DriverCheckpoint, bare
from replkernel.gpu.host_memory import free_bytes
from replkernel.gpu.in_place import Parking, in_use, lock, unlock
from replkernel.gpu.torch_library import torch
from replkernel.state.format.stream import OUT_OF_BAND_BYTES

_cuda: Any = torch.cuda
PINNED_SHARE = 1 / 8
"""Of the memory that the host has left, torch keeps so much pinned at most: nobody else can have it."""
_UUIDS = ("GPU-", "MIG-")


class CudaBackend:
    """One process's GPUs, once CUDA has started."""

    name = "cuda"

    def __init__(self, driver: DriverCheckpoint | None = None) -> None:
        self._gpus = _visible()
        self._parking = Parking(pinned=True, finish=_finish)
        self._driver = DriverCheckpoint() if driver is None else driver
        self._bytes_off = 0
        in_use(self._parking)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The UUIDs that the devices stand for."""
        return self._gpus

    @property
    def suspended(self) -> bool:
        """Whether state is off the devices, or cannot be had."""
        return self._driver.is_off or bool(self._parking)

    @property
    def locked(self) -> bool:
        """Whether the driver has the state, so that any call of CUDA blocks until it is back."""
        return self._driver.is_off

    def bind(self, gpus: tuple[str, ...]) -> str:
        """Take note of the GPUs that CUDA was or will be started with."""
        if gpus == self._gpus:
            return ""
        if not self._gpus:
            self._gpus = gpus
            return ""
        return self._started_with()

    def bound_to_others(self, gpus: tuple[str, ...]) -> str:
        """Say with which GPUs CUDA was started, if they are others."""
        if not self._gpus or not all(word.startswith(_UUIDS) for word in self._gpus):
            self._gpus = _present() or self._gpus
        if self._driver.stuck:
            return self._driver.stuck
        if gpus == self._gpus:
            return ""
        if self._driver.is_off and self._driver.mapping(self._gpus, gpus) is not None:
            return ""
        return f"CUDA was started here with {', '.join(self._gpus) or 'all that was visible then'}"

    @property
    def bound(self) -> bool:
        """Torch's way leaves CUDA's context where it is; the driver's takes all of it along."""
        return True

    def _started_with(self) -> str:
        return f"CUDA keeps {', '.join(self._gpus)}, with which it was started in this process"

    def bytes_held(self) -> int:
        """Return how many bytes torch's tensors take on the devices."""
        if not _cuda.is_initialized() or self._driver.is_off:
            return 0
        return sum(int(_cuda.memory_allocated(index)) for index in range(_cuda.device_count()))

    def bytes_off(self) -> int:
        """Return how many bytes wait in host memory."""
        self._parking.forget_the_dead()
        return self._bytes_off if self._driver.is_off else self._parking.bytes

    # -- off and back ---------------------------------------------------------------------------------

    def suspend(self, busy: str = "", *, settled: bool = False) -> Outcome:
        """Take everything off: by the driver, by torch, or not at all; what is off already stays so."""
        if self._driver.stuck:
            return Kept(self._driver.stuck)
        if not _cuda.is_initialized() or self._driver.is_off:
            return Moved()
        by_driver = self._by_driver(settled)
        if isinstance(by_driver, Moved) or self._driver.is_off:
            return by_driver
        by_torch = self._by_torch(busy)
        return by_torch if isinstance(by_torch, Moved) else Kept(f"{by_torch.why}; and {by_driver.why}")

    def _by_driver(self, settled: bool) -> Outcome:
        """Have the driver take all off; captures, which can read nothing then, must have nothing left to."""
        if self._parking or not settled:
            return Kept("the driver takes nothing off before all that cells changed is captured")
        began = time.monotonic()
        try:
            known = self._known()
        except (RuntimeError, MemoryError) as error:
            return Kept(f"what is on the GPU could not be looked at: {error}")
        _cuda.empty_cache()
        size = max(_reserved(), sum((seen.bytes_by_gpu() or {}).values()))
        random = torch_state.cuda_random()
        why = self._driver.off(size, self._gpus)
        if self._driver.is_off:
            lock(*known, _on_cuda)
            torch_state.hold_cuda_random(random or ())
        if why:
            return Kept(why)
        self._bytes_off = size
        return Moved(size, time.monotonic() - began)

    def _known(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Return what captures have to know while nobody can read a byte: digests, and small storages."""
        found = reached.storages(_on_cuda)
        buffers = {key: DeviceBuffer(torch, storage) for key, storage in found.items()}
        digests = {key: buffer.digest() for key, buffer in buffers.items()}
        return digests, {
            key: bytes(buffer.host()) for key, buffer in buffers.items() if len(buffer) < OUT_OF_BAND_BYTES
        }

    def _by_torch(self, busy: str) -> Outcome:
        """Move torch's tensors to the host, and give the memory that torch keeps back to the driver."""
        began = time.monotonic()
        why = busy or self._cannot_suspend()
        if why:
            return Kept(why)
        _finish()
        torch._C._cuda_clearCublasWorkspaces()
        gc.collect()
        found = reached.storages(_on_cuda)
        unfound = _unfound({storage.data_ptr() for storage in found.values()})
        if unfound:
            return Kept(f"{bytes_in_words(unfound)} on the GPU belong to nothing that Python knows of")
        why = self._no_room(sum(storage.nbytes() for storage in found.values()))
        if why:
            return Kept(why)
        try:
            moved = self._parking.park(found.values())
        except (RuntimeError, MemoryError) as error:
            return Kept(f"the tensors on the GPU could not be moved to host memory: {error}")
        _cuda.empty_cache()
        return Moved(moved, time.monotonic() - began)

    def _no_room(self, size: int) -> str:
        """Say so where the host has no memory for so much: pinned memory is taken, not refused."""
        free = free_bytes()
        if free is None or size <= free + _pinned_before():
            return ""
        return (
            f"{bytes_in_words(size)} are on the GPU, and the host has {bytes_in_words(free)} of memory left"
        )

    def _cannot_suspend(self) -> str:
        """Return by name what only the driver could take off the GPU."""
        foreign = [name for name in seen.FOREIGN if name in sys.modules]
        if foreign:
            return f"{', '.join(foreign)} may have arrays on the GPU, which torch cannot move"
        relatives = family.that_hold()
        if relatives:
            return f"{relatives[0]} has the GPU in use, and torch cannot move what is there"
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return "a process group of torch.distributed is open"
        graph: type = _cuda.CUDAGraph
        if any(type(value) is graph for value in gc.get_objects()):
            return "a CUDA graph holds addresses of memory on the GPU"
        allocator = _cuda.get_allocator_backend()
        if allocator != "native":
            return f"torch's memory on the GPU is handed out by {allocator}, which does not tell of it"
        shared = seen.shared_storages()
        if shared:
            return f"{shared} tensors on the GPU are shared with other processes (CUDA IPC)"
        others = _not_torchs()
        if others > 0:
            return f"about {bytes_in_words(others)} that this process has on the GPU are not torch's"
        return ""

    def resume(self, gpus: tuple[str, ...]) -> Outcome:
        """Move everything back; without the driver only to the GPUs that CUDA was started with."""
        began = time.monotonic()
        if self._driver.is_off:
            return self._back_by_driver(gpus, began)
        if gpus != self._gpus:
            return Kept(self._started_with())
        try:
            moved = self._parking.unpark()
        except (RuntimeError, MemoryError) as error:
            _cuda.empty_cache()  # What was filled already is nobody's: others may need it meanwhile.
            return Kept(f"the tensors could not be moved back to the GPU: {error}")
        took_s = time.monotonic() - began
        if _too_much_pinned(_pinned_before(), free_bytes()):
            _return_pinned()
        return Moved(moved, took_s)

    def _back_by_driver(self, gpus: tuple[str, ...], began: float) -> Outcome:
        mapping = {} if gpus == self._gpus else self._driver.mapping(self._gpus, gpus)
        if mapping is None:
            return Kept(self._started_with())
        why = self._driver.back({bare(old): bare(new) for old, new in mapping.items()})
        if not self._driver.is_off:
            unlock()
            torch_state.release_cuda_random()
            self._gpus = gpus
        return Kept(why) if why else Moved(self._bytes_off, time.monotonic() - began)


def _visible() -> tuple[str, ...]:
    """Return the GPUs that CUDA was started with, as far as a lease or somebody else has named them."""
    return tuple(word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word)


def _present() -> tuple[str, ...]:
    """Return the GPUs that CUDA has, where torch can tell: of what was visible by number, or all of it."""
    try:
        return tuple(
            f"GPU-{_cuda.get_device_properties(index).uuid}" for index in range(_cuda.device_count())
        )
    except (AttributeError, RuntimeError):
        return ()


def _pinned_before() -> int:
    """Return how many bytes of pinned memory torch keeps from before: they are filled first."""
    try:
        stats: dict[str, Any] = _cuda.host_memory_stats()
        return max(0, int(stats["allocated_bytes.current"]) - int(stats["active_bytes.current"]))
    except (AttributeError, KeyError, RuntimeError):  # Not told before torch 2.7.
        return 0


def _too_much_pinned(kept: int, free: int | None) -> bool:
    """Tell whether what torch keeps pinned for the next time is missed by others on the host."""
    return kept > 0 and (free is None or kept > free * PINNED_SHARE)


def _return_pinned() -> None:
    """Give pinned memory back that nothing uses; a torch that cannot keeps it."""
    with contextlib.suppress(AttributeError, RuntimeError):
        torch.accelerator.empty_host_cache()


def _reserved() -> int:
    """Return how many bytes torch's allocator has taken."""
    return sum(int(_cuda.memory_reserved(index)) for index in range(_cuda.device_count()))


def _not_torchs() -> int:
    """Return how much more NVML has under this process than torch and contexts take; 0: it does not tell."""
    told = seen.bytes_by_gpu()
    return 0 if not told else max(0, sum(told.values()) - _reserved() - CONTEXT_BYTES * len(told))


def _on_cuda(storage: torch.UntypedStorage) -> bool:
    return bool(storage.device.type == "cuda")


def _finish() -> None:
    for index in range(_cuda.device_count()):
        _cuda.synchronize(index)


def _unfound(addresses: set[int]) -> int:
    """Return how many bytes torch's allocator has handed out at other addresses than these."""
    blocks = [block for segment in _cuda.memory_snapshot() for block in segment["blocks"]]
    used = [block for block in blocks if block["state"] == "active_allocated"]
    return sum(int(block["size"]) for block in used if block["address"] not in addresses)
