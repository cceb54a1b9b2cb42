"""Which GPUs a kernel process sees: those of its cell's lease, and none between leases."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from replkernel.gpu.door import HIDDEN
from replkernel.kernel.visible_gpus import NONE, TORCH_LOOKS, VARIABLE, VisibleGpus
from replkernel.state.process.environment import is_own


class Torch:
    """torch, as far as CUDA's start is concerned."""

    def __init__(self) -> None:
        self.started = False
        self.cuda = SimpleNamespace(is_initialized=lambda: self.started)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test an environment of its own, without torch."""
    monkeypatch.setenv(VARIABLE, "7")
    for name in (TORCH_LOOKS, HIDDEN):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Have torch imported."""
    imported = Torch()
    monkeypatch.setitem(sys.modules, "torch", imported)
    return imported


def test_without_a_scheduler_nothing_is_touched() -> None:
    gpus = VisibleGpus()
    assert gpus.lend(None) == ""
    gpus.take_back()
    assert os.environ[VARIABLE] == "7"
    assert TORCH_LOOKS not in os.environ


def test_a_cell_sees_its_lease_and_a_cell_without_one_sees_none() -> None:
    gpus = VisibleGpus()
    assert gpus.lend(("GPU-a", "GPU-b")) == ""
    assert os.environ[VARIABLE] == "GPU-a,GPU-b"
    gpus.take_back()
    assert os.environ[VARIABLE] == NONE
    gpus.lend(())
    assert os.environ[VARIABLE] == NONE


@pytest.mark.parametrize("own", ["7", None])
def test_a_cell_that_may_see_all_finds_what_there_was_before_the_lease(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if own is None:
        monkeypatch.delenv(VARIABLE)
    gpus = VisibleGpus()
    gpus.lend(("GPU-a",))
    gpus.take_back()
    assert os.environ[VARIABLE] == NONE
    gpus.lend(None)
    assert os.environ.get(VARIABLE) == own


def test_a_look_at_cuda_between_leases_does_not_settle_what_torch_sees() -> None:
    VisibleGpus().lend(())
    assert os.environ[TORCH_LOOKS] == "1"
    os.environ[TORCH_LOOKS] = "0"
    VisibleGpus().lend(())
    assert os.environ[TORCH_LOOKS] == "0"


def test_once_cuda_has_started_the_variable_stays_and_other_gpus_are_told_of_once(torch: Torch) -> None:
    gpus = VisibleGpus()
    gpus.lend(("GPU-a",))
    torch.started = True
    gpus.take_back()
    assert os.environ[VARIABLE] == "GPU-a"
    assert gpus.lend(()) == gpus.lend(("GPU-a",)) == ""
    told = gpus.lend(("GPU-b",))
    assert "GPU-a" in told and "GPU-b" in told and "restarted" in told
    assert gpus.lend(("GPU-b",)) == ""
    assert os.environ[VARIABLE] == "GPU-a"


def test_a_process_whose_user_started_cuda_before_any_lease_is_left_alone(torch: Torch) -> None:
    torch.started = True
    gpus = VisibleGpus()
    assert gpus.lend(()) == ""
    gpus.take_back()
    assert os.environ[VARIABLE] == "7"


def test_the_visible_gpus_belong_to_the_process_and_do_not_travel() -> None:
    assert is_own(VARIABLE) and is_own(TORCH_LOOKS)
