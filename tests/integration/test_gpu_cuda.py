"""The backend of real GPUs: the contract, and what only a GPU can show. Left out where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu.backend import Backend, Moved  # noqa: E402
from tests.contracts.gpu_backend import GpuBackendContract  # noqa: E402
from tests.support.breadth import first_of  # noqa: E402

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


@pytest.fixture
def by_driver(cuda: Backend) -> Backend:
    """The backend where the driver can suspend this process."""
    checkpoint = pytest.importorskip("cuda.core.checkpoint")
    try:
        assert checkpoint.Process(os.getpid()).state == "running"
    except RuntimeError as error:
        pytest.skip(f"the driver cannot: {error}")
    return cuda


def used_by_this_process() -> int:
    """Return how many bytes NVML says that this process has, its context included."""
    nvml = pytest.importorskip("pynvml")
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    running = [each for handle in handles for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    return sum(int(each.usedGpuMemory or 1) for each in running if each.pid == os.getpid())


def test_the_driver_leaves_nothing_of_the_process_on_the_gpu_and_brings_all_back(
    by_driver: Backend, capsys: Any
) -> None:
    held = [torch.empty(2**30, dtype=torch.uint8, device="cuda").fill_(n) for n in range(10)]
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        event.record()
    seed = torch.cuda.get_rng_state()
    for _ in range(2):
        off = by_driver.suspend(settled=True)
        assert isinstance(off, Moved)
        assert by_driver.locked, "torch's way was taken"
        assert used_by_this_process() == 0
        back = by_driver.resume(by_driver.gpus)
        assert isinstance(back, Moved)
        with capsys.disabled():
            rates = [moved.bytes / moved.seconds / 1e9 for moved in (off, back)]
            print(f"\nby the driver: off {rates[0]:.1f}, back {rates[1]:.1f} GB/s")
    assert [int(each[-1]) for each in held] == list(range(10))
    assert event.query()
    assert torch.equal(torch.cuda.get_rng_state(), seed)


def test_arrays_of_cupy_and_a_thread_that_computes_live_across_the_drivers_suspension(
    by_driver: Backend,
) -> None:
    cupy = pytest.importorskip("cupy")
    array, total, stop = cupy.arange(1000), torch.zeros(1, device="cuda"), threading.Event()

    def compute() -> None:
        while not stop.is_set():
            total.add_(1)
            torch.cuda.synchronize()

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert isinstance(by_driver.suspend("a thread runs", settled=True), Moved)
        before = used_by_this_process()
        assert isinstance(by_driver.resume(by_driver.gpus), Moved)
    finally:
        stop.set()
        thread.join(60)
    assert before == 0
    assert not thread.is_alive()
    assert (int(array.sum()), bool(total.item() > 0)) == (499500, True)


FIRST_USE = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
from replkernel.gpu import first_use
asked = []
def lease():
    asked.append(1)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
first_use.watch(lease)
import torch
assert not torch.cuda.is_available() and not asked
BEFORE
x = torch.arange(10.0, device="cuda") if WAY == 0 else torch.arange(10.0).cuda()
assert (x.sum().item(), len(asked), torch.cuda.device_count()) == (45.0, 1, 1), asked
print("went on")
"""


@pytest.mark.parametrize("way", first_of(0, 1))
@pytest.mark.parametrize("before", ["pass", "torch.ones(3, requires_grad=True).sum().backward()"])
def test_torch_that_starts_cuda_without_a_lease_asks_first_and_goes_on(way: int, before: str) -> None:
    """Also after a graph on the CPU, whose engine looks how many devices there are."""
    source = FIRST_USE.replace("WAY", str(way)).replace("BEFORE", before)
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "went on", ran.stderr


def test_a_limit_of_memory_is_kept_by_torch(cuda: Backend) -> None:
    from replkernel.gpu.vram import VramLimit

    limit = VramLimit()
    limit.set(2**30)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2**31, dtype=torch.uint8, device="cuda")
        assert torch.empty(2**20, dtype=torch.uint8, device="cuda").numel() == 2**20
    finally:
        limit.set(0)
    assert torch.empty(2**31, dtype=torch.uint8, device="cuda").numel() == 2**31


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


def test_an_unchanged_model_is_captured_by_hashing_it_and_a_changed_layer_by_its_chunks(
    cuda: Backend, capsys: Any
) -> None:
    from replkernel.gpu import device_buffer
    from tests.support.notebook import changed, pair

    one, two = pair()
    one.namespace["layers"] = big_model(4)
    one.namespace["heap"] = [torch.empty(2**30, dtype=torch.uint8, device="cuda").fill_(n) for n in range(9)]
    assert two.take(one.capture(1)).failed == ()
    fetched: list[int] = []
    real = device_buffer.batches

    def watched(flat: Any, wanted: Any, chunk_bytes: int) -> Any:
        fetched.extend(wanted)
        return real(flat, wanted, chunk_bytes)

    device_buffer.batches = watched
    try:
        began = time.perf_counter()
        assert changed(one.capture(2)) == []
        with capsys.disabled():
            print(f"\nan unchanged model of 9.4 GB is captured in {time.perf_counter() - began:.3f} s")
        assert fetched == []
        with torch.no_grad():
            one["layers"][2].bias[7] = 5.0
            one["heap"][3][2**30 - 1] = 99
        delta = one.capture(3)
    finally:
        device_buffer.batches = real
    assert sorted(changed(delta)) == ["heap", "layers"]
    assert fetched == [2**30 // device_buffer.CHUNK_BYTES - 1], "a small one is in the record itself"
    assert two.take(delta).failed == ()
    assert two["heap"][3].is_cuda
    assert torch.equal(two["heap"][3], one["heap"][3])
    assert torch.equal(two["layers"][2].bias, one["layers"][2].bias)


def test_a_file_of_safetensors_is_written_from_the_device(cuda: Backend, tmp_path: Any) -> None:
    import replkernel

    safetensors = pytest.importorskip("safetensors.torch")
    model = big_model(2)
    replkernel.export(model, tmp_path / "model.safetensors")
    read = safetensors.load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(read[name], value.cpu()) for name, value in model.state_dict().items())
