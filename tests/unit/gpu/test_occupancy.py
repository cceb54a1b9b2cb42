"""One process from lease to lease: when its state moves, where to, and what keeps it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from replkernel.errors import StateSuspended  # noqa: E402
from replkernel.gpu import fake, family, in_place  # noqa: E402
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


@pytest.mark.parametrize("off", [False, True])
def test_state_that_is_larger_than_a_part_is_kept_off_a_card_that_others_use(
    occupancy: Occupancy, backend: FakeBackend, off: bool
) -> None:
    x = put(torch.ones(10))
    if off:
        occupancy.suspend()
    kept = occupancy.lend(THERE if off else HERE, 30)
    assert isinstance(kept, Kept)
    assert "40 bytes of this notebook's state belong on the GPU" in kept.why
    assert "its part of one has 30 bytes: ask for a larger part, or for a whole GPU (`%%gpu 1`)" in kept.why
    assert (backend.bytes_held(), occupancy.bytes_off()) == (0, 40)
    assert isinstance(occupancy.lend(THERE, 40), Moved)
    assert x.sum().item() == 10


def test_a_lease_that_is_too_small_leaves_the_state_where_it_was(
    occupancy: Occupancy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(HERE + THERE))
    x, y = put(torch.ones(1)), put(torch.ones(2), "cuda:1")
    occupancy.suspend()
    kept = occupancy.lend(THERE)
    assert isinstance(kept, Kept)
    assert "2 GPUs" in kept.why
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


def test_more_than_the_host_may_take_stays_and_the_setting_is_named(occupancy: Occupancy) -> None:
    x = put(torch.ones(1000))
    occupancy.host_bytes_max = 3999
    kept = occupancy.suspend()
    assert isinstance(kept, Kept)
    assert "REPLKERNEL_GPU_HOST_GB" in kept.why
    assert occupancy.bytes_held() == 4000
    occupancy.host_bytes_max = 4000
    assert isinstance(occupancy.suspend(), Moved)
    assert (occupancy.bytes_held(), occupancy.bytes_off()) == (0, 4000)
    assert isinstance(occupancy.suspend(), Moved), "what is off already counts once"
    occupancy.lend(HERE)
    assert x.sum().item() == 1000


def test_a_cell_that_reaches_what_is_off_in_the_middle_has_it_back_and_goes_on(backend: FakeBackend) -> None:
    occupancy = Occupancy(lambda thread: True, lambda: occupancy.lend(HERE))
    x = put(torch.arange(10.0))
    occupancy.suspend()
    occupancy.cell_runs(runs=True)
    assert x[3:].sum().item() == 42
    assert x.sum().item() == 45
    occupancy.cell_runs(runs=False)
    assert not torch.overrides._len_torch_function_stack()
    occupancy.suspend()
    assert backend.suspended
    occupancy.lend(HERE)


def test_a_tensor_made_on_a_gpu_that_was_left_is_a_first_use(
    occupancy: Occupancy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replkernel.gpu import first_use

    asked: list[str] = []
    monkeypatch.setattr(first_use, "_watched", [])
    first_use.watch(lambda: asked.append("lease"))
    x = put(torch.ones(1))
    occupancy.suspend()
    occupancy.cell_runs(runs=True)
    torch.ones(2, device="cpu")
    assert asked == []
    for make in (lambda: torch.ones(2, device="cuda"), lambda: torch.ones(2).to(torch.device("cuda", 0))):
        with contextlib.suppress(RuntimeError, AssertionError):  # There is none here.
            make()
    occupancy.cell_runs(runs=False)
    first_use.rest()
    assert asked == ["lease", "lease"]
    occupancy.lend(HERE)
    assert x.item() == 1


def test_a_cell_whose_threads_may_start_cuda_does_not_leave_its_gpus(
    occupancy: Occupancy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds nothing yet: its thread would start on GPUs that are somebody else's by then."""
    monkeypatch.setattr(family, "without_gpus", lambda: ())  # Other modules' tests keep processes.
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, name="loader")
    thread.start()
    try:
        assert occupancy.leave() == Kept("thread loader runs and may start CUDA")
    finally:
        ends.set()
        thread.join()
    assert occupancy.leave() == Moved()
