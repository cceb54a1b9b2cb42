"""The limit of a GPU's memory: for torch as CUDA starts, for pretended GPUs, for nobody else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from replkernel.gpu import vram
from replkernel.gpu.vram import GIB, PROCESS_BYTES, VramLimit

GB = 10**9


@pytest.fixture(autouse=True)
def _no_limit_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vram, "_pretended", [0])


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As much of torch.cuda as is called: two devices, of 40 and 80 GB."""
    module: Any = ModuleType("torch.cuda")
    module.queued, module.fractions, module._initialized = list[Callable[[], None]](), {}, False
    module._lazy_call = module.queued.append
    module.device_count = lambda: 2
    module.get_device_properties = lambda index: SimpleNamespace(total_memory=(40 * GB, 80 * GB)[index])
    module.set_per_process_memory_fraction = lambda fraction, index: module.fractions.update(
        {index: fraction}
    )
    module.kept = {0: 0, 1: 0}
    module.memory_reserved = lambda index: module.kept[index]
    module.empty_cache = lambda: module.kept.update({0: 0, 1: 0})
    monkeypatch.setitem(sys.modules, "torch.cuda", module)
    return module


def test_the_memory_limit_waits_for_cuda_and_counts_as_it_is_by_then(cuda: Any) -> None:
    limit = VramLimit()
    limit.set(10 * GB)
    limit.set(20 * GB)
    assert len(cuda.queued) == 1
    cuda.queued[0]()
    assert cuda.fractions == {0: 0.5, 1: 0.25}


def test_later_it_is_changed_and_taken_away_at_once(cuda: Any) -> None:
    cuda._initialized = True
    limit = VramLimit()
    limit.set(20 * GB)
    limit.set(60 * GB)
    assert cuda.fractions == {0: 1.0, 1: 0.75}
    limit.set(0)
    assert cuda.fractions == {0: 1.0, 1: 1.0}


def test_parts_that_come_to_a_card_leave_cuda_its_own_memory_of_what_the_card_really_has(cuda: Any) -> None:
    total = offered = int(79.1 * GIB)
    cuda._initialized = True
    cuda.get_device_properties = lambda index: SimpleNamespace(total_memory=total)
    for parts in (1, 2, 4, 50, 100):
        VramLimit().set(offered // parts, shared=True)
        may = cuda.fractions[0] * total
        assert may > 0
        assert parts * (may + (PROCESS_BYTES if parts <= 50 else 0)) <= total


def test_torchs_spare_memory_goes_where_it_exceeds_the_limit(cuda: Any) -> None:
    cuda._initialized, cuda.kept[0] = True, 20 * GB
    limit = VramLimit()
    limit.set(20 * GB)
    assert cuda.kept[0] == 20 * GB
    limit.set(10 * GB)
    assert cuda.kept[0] == 0


def test_who_was_never_limited_keeps_what_the_notebook_has_set(cuda: Any) -> None:
    cuda._initialized = True
    VramLimit().set(0)
    assert cuda.fractions == {}


def test_torch_that_is_imported_later_is_limited_then(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.cuda")
    limit = VramLimit()
    limit.set(20 * GB)
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    limit.keep()
    cuda.queued[0]()
    assert cuda.fractions[0] == 0.5


def test_a_pretended_gpu_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from replkernel.gpu import fake, in_place

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-fake-h1-0")
    monkeypatch.setattr(fake, "_backends", [fake.FakeBackend()])
    limit = VramLimit()
    limit.set(1000)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        fake.put(torch.empty(1001, dtype=torch.uint8))
    limit.set(0)
    assert fake.put(torch.empty(1001, dtype=torch.uint8)).numel() == 1001
    in_place._in_use.clear()
