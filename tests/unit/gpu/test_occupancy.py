"""One process from lease to lease: when its state moves, where to, and what keeps it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from replkernel.errors import StateSuspended  # noqa: E402
from replkernel.gpu import fake, in_place  # noqa: E402
from replkernel.gpu.backend import Kept, Moved  # noqa: E402
from replkernel.gpu.fake import FakeBackend, put  # noqa: E402
from replkernel.gpu.occupancy import Occupancy  # noqa: E402
from replkernel.gpu.touched import refuse  # noqa: E402

HERE, THERE = ("GPU-fake-h1-0",), ("GPU-fake-h1-1",)


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", HERE[0])
    made = FakeBackend()
    monkeypatch.setattr(fake, "_backends", [made])
    yield made
    in_place._in_use.clear()


@pytest.fixture
def occupancy(backend: FakeBackend) -> Iterator[Occupancy]:
    before = set(threading.enumerate())
    made = Occupancy(lambda thread: thread in before, refuse)
    yield made
    made._rest()


def test_a_process_that_uses_no_gpu_has_nothing_to_move(occupancy: Occupancy) -> None:
    assert occupancy.backend() is None
    assert occupancy.lend(HERE) == Moved()
    assert occupancy.suspend() == Moved()
    assert (occupancy.gpus, occupancy.suspended, occupancy.bytes_held()) == (None, False, 0)


def test_state_that_lingers_is_there_for_the_next_lease_on_the_same_gpu(occupancy: Occupancy) -> None:
    x = put(torch.ones(10))
    assert occupancy.lend(HERE) == Moved()
    assert occupancy.bytes_held() == 40
    assert x.sum().item() == 10


def test_state_follows_a_lease_on_another_gpu_at_once(occupancy: Occupancy) -> None:
    x = put(torch.ones(10))
    moved = occupancy.lend(THERE)
    assert isinstance(moved, Moved)
    assert moved.bytes == 40
    assert occupancy.gpus == THERE
    assert x.sum().item() == 10


def test_state_comes_back_for_the_next_lease_and_is_watched_meanwhile(occupancy: Occupancy) -> None:
    x = put(torch.ones(10))
    occupancy.suspend()
    occupancy.cell_runs(runs=True)
    with pytest.raises(StateSuspended):
        x.sum()
    occupancy.cell_runs(runs=False)
    moved = occupancy.lend(THERE)
    assert isinstance(moved, Moved)
    assert moved.bytes == 40
    assert x.sum().item() == 10
    assert not torch.overrides._len_torch_function_stack()


def test_a_lease_that_is_too_small_leaves_the_state_where_it_was(
    occupancy: Occupancy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(HERE + THERE))
    x, y = put(torch.ones(1)), put(torch.ones(2), "cuda:1")
    occupancy.suspend()
    kept = occupancy.lend(THERE)
    assert isinstance(kept, Kept)
    assert "2 devices" in kept.why
    assert occupancy.suspended
    assert isinstance(occupancy.lend(HERE + THERE), Moved)
    assert (x.item(), y.sum().item()) == (1, 2)


def test_a_thread_of_the_notebooks_own_keeps_the_state_and_is_named(occupancy: Occupancy) -> None:
    x, over = put(torch.ones(1)), threading.Event()
    thread = threading.Thread(target=over.wait, name="loader")
    thread.start()
    try:
        kept = occupancy.suspend()
        assert isinstance(kept, Kept)
        assert "loader" in kept.why
        assert occupancy.bytes_held() == 4
    finally:
        over.set()
        thread.join()
    assert isinstance(occupancy.suspend(), Moved)
    occupancy.lend(HERE)
    assert x.item() == 1


def test_a_thread_of_the_kernels_that_does_not_answer_keeps_the_state(backend: FakeBackend) -> None:
    occupancy = Occupancy(lambda thread: True, refuse, lambda function: False)
    x = put(torch.ones(1))
    assert isinstance(occupancy.suspend(), Kept)
    assert x.item() == 1
    assert not torch.overrides._len_torch_function_stack()


def test_a_default_device_that_the_notebook_sets_meanwhile_stays_set(occupancy: Occupancy) -> None:
    x = put(torch.ones(1))
    occupancy.suspend()
    torch.set_default_device("meta")
    try:
        occupancy.lend(HERE)
        assert torch.ones(1).device.type == "meta"
        assert x.item() == 1
    finally:
        torch.set_default_device(None)
