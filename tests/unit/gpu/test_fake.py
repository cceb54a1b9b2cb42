"""Pretended GPUs: the contract, and what is theirs alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu import fake, in_place  # noqa: E402
from replkernel.gpu.backend import Backend, Kept, Moved  # noqa: E402
from replkernel.gpu.fake import FakeBackend, posing, put  # noqa: E402
from replkernel.gpu.fake_usage import read_usage  # noqa: E402
from replkernel.gpu.occupancy import Occupancy  # noqa: E402
from tests.contracts.gpu_backend import GpuBackendContract  # noqa: E402

GPU, OTHER = "GPU-fake-h1-0", "GPU-fake-h2-0"


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    backend = FakeBackend(memory_bytes=1_000_000)
    monkeypatch.setattr(fake, "_backends", [backend])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPU)
    backend.bind((GPU,))
    yield backend
    in_place._in_use.clear()


class TestFakeBackend(GpuBackendContract):
    @pytest.fixture
    def backend(self, fakes: FakeBackend) -> Backend:
        return fakes

    def put(self, value: Any) -> Any:
        return put(value)


def test_results_and_what_graphs_saved_pose_as_well(fakes: FakeBackend) -> None:
    with posing():
        weight = torch.ones(3, requires_grad=True)
        loss = (weight * 2).exp().sum()
    held = fakes.bytes_held()
    assert held > 3 * 4
    off = fakes.suspend()
    assert isinstance(off, Moved)
    assert off.bytes == held
    fakes.resume((GPU,))
    loss.backward()
    assert torch.allclose(weight.grad, 2 * torch.exp(torch.tensor(2.0)) * torch.ones(3))


def test_state_goes_on_on_another_gpu_and_is_seen_there_from_outside(fakes: FakeBackend) -> None:
    x = put(torch.ones(100))
    assert read_usage(GPU, os.environ) == {os.getpid(): 400}
    fakes.suspend()
    assert read_usage(GPU, os.environ) == {}
    assert isinstance(fakes.resume((OTHER,)), Moved)
    assert fakes.gpus == (OTHER,)
    assert (read_usage(GPU, os.environ), read_usage(OTHER, os.environ)) == ({}, {os.getpid(): 400})
    assert x.sum().item() == 100


def test_state_of_two_devices_needs_two(fakes: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{GPU},GPU-fake-h1-1")
    x = put(torch.ones(1), "cuda:1")
    fakes.suspend()
    kept = fakes.resume((OTHER,))
    assert isinstance(kept, Kept)
    assert "`%%gpu 2`" in kept.why, "it names the fix"
    assert isinstance(fakes.resume((OTHER, GPU)), Moved)
    assert x.item() == 1


def test_a_gpu_that_holds_state_is_not_another_one_by_being_called_so(fakes: FakeBackend) -> None:
    x = put(torch.ones(1))
    assert GPU in fakes.bind((OTHER,))
    assert fakes.gpus == (GPU,)
    del x
    assert fakes.bind((OTHER,)) == ""


def test_memory_ends_where_the_gpus_does(fakes: FakeBackend) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        put(torch.empty(1_000_001, dtype=torch.uint8))
    assert put(torch.empty(400_000, dtype=torch.uint8)).numel() == 400_000


def test_without_a_lease_there_is_no_gpu(fakes: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(RuntimeError, match="No CUDA GPUs are available"):
        put(torch.ones(1))


def test_gpus_that_stay_are_kept_as_cuda_keeps_its_own(
    fakes: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.stay()
    x = put(torch.ones(10))
    assert fakes.bound_to_others((GPU,)) == ""
    assert fakes.bound_to_others((OTHER,)) == f"CUDA was started here with {GPU}"
    fakes.suspend()
    kept = fakes.resume((OTHER,))
    assert isinstance(kept, Kept)
    assert isinstance(fakes.resume((GPU,)), Moved)
    assert x.sum().item() == 10
    del x
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", OTHER)
    y = put(torch.ones(5))
    assert fakes.gpus == (GPU,)
    assert fakes.in_use
    assert y.sum().item() == 5


def test_a_tensor_that_nobody_has_any_more_is_not_seen_on_a_fake_gpu_either(fakes: FakeBackend) -> None:
    occupancy = Occupancy(lambda thread: True, lambda: None)
    x = put(torch.ones(1000))
    assert read_usage(GPU, os.environ) == {os.getpid(): 4000}
    del x
    assert occupancy.suspend() == Moved()
    assert read_usage(GPU, os.environ) == {}
