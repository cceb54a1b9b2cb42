"""Our calls of NVIDIA's libraries as these are installed: names, signatures, what goes to the driver.

The driver itself is a stand-in, so no GPU is needed; a test is left out where its library is not installed.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

from replkernel.gpu import driver, seen
from replkernel.gpu.driver import LOCK_TIMEOUT_MS, DriverCheckpoint, bare

GPU, OTHER = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "ab")
NVML_CALLS: dict[str, tuple[Any, ...]] = {
    "nvmlInit": (),
    "nvmlDeviceGetCount": (),
    "nvmlDeviceGetHandleByIndex": (0,),
    "nvmlDeviceGetName": ("handle",),
    "nvmlDeviceGetUUID": ("handle",),
    "nvmlDeviceGetMemoryInfo": ("handle", 2),
    "nvmlDeviceGetMigMode": ("handle",),
    "nvmlDeviceGetMaxMigDeviceCount": ("handle",),
    "nvmlDeviceGetMigDeviceHandleByIndex": ("handle", 0),
    "nvmlDeviceGetComputeRunningProcesses": ("handle",),
    "nvmlDeviceGetGraphicsRunningProcesses": ("handle",),
    "nvmlDeviceGetUtilizationRates": ("handle",),
}


class Driver:
    """The real bindings' structures, and functions that only take note of their arguments."""

    def __init__(self, real: Any, fails: str = "") -> None:
        self._real = real
        self._fails = fails
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not name.startswith("cuCheckpointProcess"):
            return found

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name.removeprefix("cuCheckpointProcess"), arguments))
            results = self._real.CUresult
            if name.endswith("GetState"):
                return results.CUDA_SUCCESS, self._real.CUprocessState.CU_PROCESS_STATE_FAILED
            wrong = results.CUDA_ERROR_NOT_SUPPORTED if name.endswith(self._fails or "-") else None
            return (wrong or results.CUDA_SUCCESS,)

        return call


@pytest.fixture
def checkpoint() -> Any:
    pytest.importorskip("cuda.bindings.driver")
    return pytest.importorskip("cuda.core.checkpoint")


def stand_in(checkpoint: Any, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> Driver:
    from cuda.bindings import driver as real

    made = Driver(real, fails)
    monkeypatch.setattr(checkpoint, "_get_driver", lambda: made)
    return made


def test_this_process_goes_through_all_four_steps_with_its_gpus_mapped(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = stand_in(checkpoint, monkeypatch)
    monkeypatch.setattr(driver, "free_bytes", lambda: None)
    mine = DriverCheckpoint(machine=lambda: {GPU: "H100", OTHER: "H100"})
    assert mine.off(100, (GPU,)) == ""
    mapping = mine.mapping((GPU,), (OTHER,))
    assert mapping == {GPU: OTHER, OTHER: GPU}
    assert mine.back({bare(old): bare(new) for old, new in mapping.items()}) == ""
    assert [name for name, _ in called.calls] == ["Lock", "Checkpoint", "Restore", "Unlock"]
    assert {arguments[0] for _, arguments in called.calls} == {os.getpid()}
    assert called.calls[0][1][1].timeoutMs == LOCK_TIMEOUT_MS
    given = called.calls[2][1][1]
    assert given.gpuPairsCount == 2
    pairs = {bytes(pair.oldUuid.bytes).hex(): bytes(pair.newUuid.bytes).hex() for pair in given.gpuPairs}
    plain = {gpu: bare(gpu).replace("-", "") for gpu in (GPU, OTHER)}
    assert pairs == {plain[GPU]: plain[OTHER], plain[OTHER]: plain[GPU]}


def test_a_driver_without_it_is_asked_once(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called = stand_in(checkpoint, monkeypatch, fails="Lock")
    monkeypatch.setattr(driver, "free_bytes", lambda: None)
    mine = DriverCheckpoint()
    assert "not supported by the installed NVIDIA driver" in mine.off(100, (GPU,))
    assert mine.off(100, (GPU,)) != ""
    assert (len(called.calls), mine.is_off) == (1, False)


def test_a_process_that_the_driver_gives_up_is_known_by_its_state(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(checkpoint, monkeypatch, fails="Restore")
    monkeypatch.setattr(driver, "free_bytes", lambda: None)
    mine = DriverCheckpoint()
    assert mine.off(100, (GPU,)) == ""
    assert mine.back({}) == mine.stuck != ""
    assert mine.is_off


def test_a_machine_without_a_driver_is_refused_in_a_sentence(checkpoint: Any) -> None:
    if seen.models():
        pytest.skip("there is a GPU")
    why = DriverCheckpoint().off(100, (GPU,))
    assert why.startswith("the driver cannot suspend this process (")
    assert "\n" not in why


def test_the_calls_of_nvml_are_there_with_these_arguments() -> None:
    nvml = pytest.importorskip("pynvml")
    for name, arguments in NVML_CALLS.items():
        inspect.signature(getattr(nvml, name)).bind(*arguments)
    assert {"pid", "usedGpuMemory"} <= {name for name, _ in nvml.c_nvmlProcessInfo_t._fields_}
    assert {"total", "used"} <= {name for name, _ in nvml.c_nvmlMemory_t._fields_}
    assert "gpu" in {name for name, _ in nvml.c_nvmlUtilization_t._fields_}


def test_the_calls_of_torch_are_there() -> None:
    torch = pytest.importorskip("torch")
    calls: dict[str, tuple[Any, ...]] = {
        "is_initialized": (),
        "device_count": (),
        "synchronize": (0,),
        "memory_allocated": (0,),
        "memory_reserved": (0,),
        "memory_snapshot": (),
        "empty_cache": (),
        "host_memory_stats": (),
        "get_device_properties": (0,),
        "set_per_process_memory_fraction": (0.5, 0),
        "get_allocator_backend": (),
        "_lazy_call": (print,),
    }
    for name, arguments in calls.items():
        inspect.signature(getattr(torch.cuda, name)).bind(*arguments)
    inspect.signature(torch.accelerator.empty_host_cache).bind()
    assert "torch._C._cuda_init()" in inspect.getsource(torch.cuda._lazy_init), "it is stopped there"
