"""The backend of real GPUs: the contract, and what only a GPU can show. Left out where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu.backend import Backend, Moved  # noqa: E402
from tests.contracts.gpu_backend import GpuBackendContract  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

TAKE_ALL = """
import torch
free, _ = torch.cuda.mem_get_info()
x = torch.empty(int(free * 0.95), dtype=torch.uint8, device="cuda").fill_(7)
print(int(x[-1]))
"""
LAYER = 4096


@pytest.fixture
def cuda() -> Backend:
    """The backend of this process's GPU, with nothing on it but the context."""
    from replkernel.gpu.cuda import CudaBackend

    torch.cuda.init()
    torch.cuda.empty_cache()
    backend = CudaBackend()
    backend.bind(backend.gpus or ("GPU-of-the-test",))
    return backend


class TestCudaBackend(GpuBackendContract):
    @pytest.fixture
    def backend(self, cuda: Backend) -> Backend:
        return cuda

    def put(self, value: Any) -> Any:
        return value.cuda()


def big_model(layers: int) -> Any:
    return torch.nn.Sequential(*(torch.nn.Linear(LAYER, LAYER) for _ in range(layers))).cuda()


def test_a_suspended_process_leaves_the_gpu_to_another_and_trains_on_bit_by_bit(cuda: Backend) -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        assert _losses(cuda, moves=True) == _losses(cuda, moves=False)
    finally:
        torch.use_deterministic_algorithms(False)


def _losses(cuda: Backend, *, moves: bool) -> list[float]:
    torch.manual_seed(5)
    model = big_model(4)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, seen = torch.randn(64, LAYER, device="cuda"), []
    for step in range(6):
        optimizer.zero_grad()
        noise = torch.randn_like(inputs) * 0.1
        loss = model(inputs + noise).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        if moves and step == 2:
            del loss, noise
            assert isinstance(cuda.suspend(), Moved)
            taken = subprocess.run(
                [sys.executable, "-c", TAKE_ALL], capture_output=True, text=True, check=False
            )
            assert taken.stdout.strip() == "7", taken.stderr
            assert isinstance(cuda.resume(cuda.gpus), Moved)
    return seen


def test_the_way_off_and_back_is_told_beside_pinned_copies(cuda: Backend, capsys: Any) -> None:
    held = [torch.empty(2**30, dtype=torch.uint8, device="cuda").fill_(n) for n in range(10)]
    pinned = torch.empty(2**30, dtype=torch.uint8, pin_memory=True)
    torch.cuda.synchronize()
    began = time.perf_counter()
    pinned.copy_(held[0], non_blocking=True)
    torch.cuda.synchronize()
    plain = 2**30 / (time.perf_counter() - began) / 1e9
    for _ in range(2):
        off, back = cuda.suspend(), cuda.resume(cuda.gpus)
        assert isinstance(off, Moved)
        assert isinstance(back, Moved)
        with capsys.disabled():
            rates = [moved.bytes / moved.seconds / 1e9 for moved in (off, back)]
            print(f"\noff {rates[0]:.1f}, back {rates[1]:.1f}, pinned copy {plain:.1f} GB/s")
    assert [int(each[-1]) for each in held] == list(range(10))


def test_an_unchanged_model_has_the_same_digests_on_the_gpu_and_off_it(cuda: Backend) -> None:
    from replkernel.gpu.device_buffer import DeviceBuffer
    from replkernel.gpu.in_place import parked_of

    model = big_model(8)
    storages = [parameter.untyped_storage() for parameter in model.parameters()]
    before = [DeviceBuffer(torch, storage).digest() for storage in storages]
    cuda.suspend()
    assert [DeviceBuffer(torch, each, parked_of(each)).digest() for each in storages] == before
    cuda.resume(cuda.gpus)
    assert [DeviceBuffer(torch, storage).digest() for storage in storages] == before
