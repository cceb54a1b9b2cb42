"""The backend of real GPUs over a stand-in for torch.cuda: the contract, and what keeps all where it is.

What a GPU itself does is tested in `tests/integration/test_gpu_cuda.py`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.multiprocessing import reductions  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

from replkernel.gpu import cuda, in_place, seen  # noqa: E402
from replkernel.gpu.backend import Backend, Kept, Moved  # noqa: E402
from replkernel.gpu.cuda import CudaBackend  # noqa: E402
from replkernel.gpu.host_copy import HostRoom  # noqa: E402
from tests.contracts.gpu_backend import GpuBackendContract  # noqa: E402

GPU = "GPU-1234"


class Card:
    """Stands in for torch.cuda with one device, and for its allocator: it knows what was put there."""

    class CUDAGraph:
        """Stands in for a captured graph."""

    def __init__(self) -> None:
        self.started = True
        self.emptied = 0
        self.allocator = "native"
        self._known: dict[int, Any] = {}

    def take(self, storage: Any) -> None:
        """Have a storage lie here."""
        self._known[storage._cdata] = StorageWeakRef(storage)

    def holds(self, storage: Any) -> bool:
        """Tell whether a storage lies here."""
        ref = self._known.get(storage._cdata)
        return ref is not None and not ref.expired()

    def _live(self) -> list[Any]:
        found = [torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in self._known.values()]
        return [storage for storage in found if storage is not None and storage.nbytes()]

    def is_initialized(self) -> bool:
        return self.started

    def device_count(self) -> int:
        return 1

    def synchronize(self, index: int) -> None:
        assert index == 0

    def memory_allocated(self, index: int) -> int:
        return sum(storage.nbytes() for storage in self._live())

    def memory_reserved(self, index: int) -> int:
        return self.memory_allocated(index)

    def memory_snapshot(self) -> list[dict[str, Any]]:
        blocks = [
            {"state": "active_allocated", "address": each.data_ptr(), "size": each.nbytes()}
            for each in self._live()
        ]
        return [{"blocks": [*blocks, {"state": "inactive", "address": 1, "size": 512}]}]

    def empty_cache(self) -> None:
        self.emptied += 1

    def get_allocator_backend(self) -> str:
        return self.allocator


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    made = Card()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPU)
    monkeypatch.setattr(cuda, "_cuda", made)
    monkeypatch.setattr(cuda, "_on_cuda", made.holds)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(in_place, "HostRoom", lambda total, pinned: HostRoom(total, pinned=False))
    yield made
    in_place._in_use.clear()


class TestCudaBackend(GpuBackendContract):
    @pytest.fixture
    def backend(self, card: Card) -> Backend:
        self.card = card
        return CudaBackend()

    def put(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            for tensor in [*value.parameters(), *value.buffers()]:
                self.card.take(tensor.untyped_storage())
            return value
        made = value.detach().clone()
        self.card.take(made.untyped_storage())
        return made


def tensor_on(card: Card) -> Any:
    made = torch.ones(10)
    card.take(made.untyped_storage())
    return made


def test_memory_that_torch_keeps_goes_back_to_the_driver(card: Card) -> None:
    backend, x = CudaBackend(), tensor_on(card)
    assert isinstance(backend.suspend(), Moved)
    assert card.emptied == 1
    backend.resume((GPU,))
    assert x.sum().item() == 10


def test_a_process_in_which_cuda_has_not_started_has_nothing_there(card: Card) -> None:
    card.started = False
    backend = CudaBackend()
    assert backend.suspend() == Moved()
    assert backend.bytes_held() == 0


def test_a_cuda_graph_keeps_everything_there(card: Card) -> None:
    backend, x = CudaBackend(), tensor_on(card)
    holder = {"graph": card.CUDAGraph(), "values": [x]}
    kept = backend.suspend()
    assert isinstance(kept, Kept)
    assert "CUDA graph" in kept.why
    assert len(holder) == 2
    assert x.sum().item() == 10


def test_an_allocator_without_figures_keeps_everything_there(card: Card) -> None:
    """`memory_snapshot` raises with it: nobody could tell whether all was found."""
    card.allocator = "cudaMallocAsync"
    backend, x = CudaBackend(), tensor_on(card)
    kept = backend.suspend()
    assert isinstance(kept, Kept)
    assert "cudaMallocAsync" in kept.why
    assert x.sum().item() == 10


def test_a_tensor_that_another_process_has_as_well_keeps_everything_there(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, x = CudaBackend(), tensor_on(card)
    cache = reductions.SharedCache()
    monkeypatch.setattr(reductions, "shared_cache", cache)
    file, numbers = StorageWeakRef(torch.ones(1).untyped_storage()), StorageWeakRef(x.untyped_storage())
    cache[b"/torch_1_2"], cache[(5, 6)] = file, numbers
    assert isinstance(backend.suspend(), Moved), "memory of the host may be shared"
    backend.resume((GPU,))
    for handle in (b"h" * 64, (b"h" * 64, 512)):
        cache[handle] = StorageWeakRef(x.untyped_storage())
        kept = backend.suspend()
        assert isinstance(kept, Kept)
        assert "CUDA IPC" in kept.why
        del cache[handle]
    assert x.sum().item() == 10


def test_memory_beside_torchs_keeps_everything_there_where_nvml_tells_of_it(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, x = CudaBackend(), tensor_on(card)
    monkeypatch.setattr(seen, "bytes_by_gpu", lambda: {GPU: cuda.CONTEXT_BYTES + 40})
    assert isinstance(backend.suspend(), Moved), "a context may take so much"
    backend.resume((GPU,))
    monkeypatch.setattr(seen, "bytes_by_gpu", lambda: {GPU: cuda.CONTEXT_BYTES + 40 + 5 * 2**30})
    kept = backend.suspend()
    assert isinstance(kept, Kept)
    assert kept.why == (
        "about 5 GiB that this process has on the GPU are not torch's; "
        "and the driver takes nothing off before all that cells changed is captured"
    )
    assert x.sum().item() == 10


def test_arrays_of_another_library_keep_everything_there(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, x = CudaBackend(), tensor_on(card)
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    kept = backend.suspend()
    assert isinstance(kept, Kept)
    assert "cupy" in kept.why
    assert x.sum().item() == 10


def test_memory_that_another_library_allocated_keeps_everything_there(card: Card) -> None:
    import numpy as np

    backend, x = CudaBackend(), tensor_on(card)
    foreign = torch.from_numpy(np.ones(5))
    card.take(foreign.untyped_storage())
    kept = backend.suspend()
    assert isinstance(kept, Kept)
    assert "another library" in kept.why
    assert (x.sum().item(), foreign.sum().item()) == (10, 5)


def test_cuda_keeps_the_gpus_that_it_was_started_with(card: Card) -> None:
    backend, x = CudaBackend(), tensor_on(card)
    assert backend.gpus == (GPU,)
    assert GPU in backend.bind(("GPU-other",))
    backend.suspend()
    kept = backend.resume(("GPU-other",))
    assert isinstance(kept, Kept)
    assert GPU in kept.why
    assert backend.suspended
    assert isinstance(backend.resume((GPU,)), Moved)
    assert x.sum().item() == 10


def test_cuda_says_with_which_gpus_it_was_started_when_a_lease_is_on_others(card: Card) -> None:
    backend = CudaBackend()
    assert backend.bound_to_others((GPU,)) == ""
    assert backend.bound_to_others(("GPU-5678",)) == f"CUDA was started here with {GPU}"
    assert backend.bound_to_others((GPU, "GPU-5678")) != ""


@pytest.mark.parametrize("visible", ["", "0"])
def test_cuda_that_was_started_without_a_lease_knows_its_gpus_by_torch(
    card: Card, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    properties = types.SimpleNamespace(uuid=GPU.removeprefix("GPU-"))
    monkeypatch.setattr(card, "get_device_properties", lambda index: properties, raising=False)
    backend = CudaBackend()
    assert backend.bound_to_others((GPU,)) == ""
    assert backend.bind((GPU,)) == ""
    assert "was started here" in backend.bound_to_others(("GPU-5678",))


def test_cuda_whose_gpus_nobody_knows_is_taken_to_have_others(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "all that was visible" in CudaBackend().bound_to_others((GPU,))


def test_a_host_without_memory_keeps_everything_there(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinned memory beyond a container's limit is not refused: the process would be killed."""
    backend, x = CudaBackend(), tensor_on(card)
    monkeypatch.setattr(cuda, "free_bytes", lambda: 39)
    kept = backend.suspend()
    assert isinstance(kept, Kept)
    assert "40 bytes are on the GPU, and the host has 39 bytes of memory left" in kept.why
    assert x.sum().item() == 10
    stats = {"allocated_bytes.current": 64, "active_bytes.current": 0}
    monkeypatch.setattr(card, "host_memory_stats", lambda: stats, raising=False)
    assert isinstance(backend.suspend(), Moved), "it fits into what torch keeps pinned from before"
    backend.resume((GPU,))
    assert x.sum().item() == 10


@pytest.mark.parametrize(("free", "returned"), [(64 * 100, False), (64 * 3, True)])
def test_pinned_memory_is_returned_where_the_host_is_short_of_it(
    card: Card, monkeypatch: pytest.MonkeyPatch, free: int, returned: bool
) -> None:
    """It is kept for the next time otherwise: to pin memory anew takes longer than to copy into it."""
    backend, x, calls = CudaBackend(), tensor_on(card), []
    stats = {"allocated_bytes.current": 64, "active_bytes.current": 0}
    monkeypatch.setattr(card, "host_memory_stats", lambda: stats, raising=False)
    monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: calls.append("emptied"))
    monkeypatch.setattr(cuda, "free_bytes", lambda: free)
    assert isinstance(backend.suspend(), Moved)
    assert calls == []
    assert isinstance(backend.resume((GPU,)), Moved)
    assert bool(calls) is returned
    assert x.sum().item() == 10
