"""Whoever starts CUDA while its cell is paused waits, and gets the GPUs that the cell goes on with."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from replkernel.gpu.backend import Kept, Moved
from replkernel.gpu.door import Asked
from replkernel.gpu.occupancy import Occupancy
from replkernel.gpu.touched import refuse
from replkernel.kernel import cuda_asks
from replkernel.kernel.cuda_asks import CudaAsks
from replkernel.kernel.hand_over import SIGNAL

OLD, NEW = "GPU-old", "GPU-new"


class Open:
    """The door before `cuInit`, without CUDA behind it."""

    is_there = True

    def __init__(self, asked: Callable[[], int]) -> None:
        self.open = True

    def stand(self, *, open_: bool) -> None:
        self.open = open_


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaAsks]:
    monkeypatch.setattr(cuda_asks, "Door", Open)
    monkeypatch.setenv("REPLKERNEL_CUDA_ASKS", "")
    before = signal.signal(SIGNAL, signal.SIG_IGN)
    yield CudaAsks(lambda: None, lambda: None, lambda: False)
    signal.signal(SIGNAL, before)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A program of the cell's that holds no GPU yet."""
    made = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield made
    made.communicate(b"\n")


def begins(asks: CudaAsks) -> None:
    """Have a cell begin on a GPU; who asks is heard by the test itself."""
    asks._path = "heard here"
    assert asks.cell((OLD,), "")


def test_who_comes_in_a_pause_waits_and_computes_where_its_cell_goes_on(
    asks: CudaAsks, child: subprocess.Popen[bytes]
) -> None:
    begins(asks)
    assert asks.shut() is not None
    looks = iter([True, True])

    def looked() -> bool:
        """Have the cell go on when the child has been told twice to wait."""
        if next(looks, None) is None:
            asks.cell((NEW,), "")
        return True

    assert asks._await(Asked(child.pid, False, OLD), looked) == f"use {NEW}"


def test_a_child_that_is_on_its_way_to_a_gpu_keeps_the_cell_there(
    asks: CudaAsks, child: subprocess.Popen[bytes]
) -> None:
    occupancy = Occupancy(lambda thread: True, refuse)
    begins(asks)
    assert occupancy.leave(asks.shut()) == Moved(), "it has not come to the door, which is shut now"
    begins(asks)
    assert asks._await(Asked(child.pid, False, OLD), lambda: True) == "go"
    outcome = occupancy.leave(asks.shut())
    assert isinstance(outcome, Kept)
    assert outcome.why.startswith(f"process {child.pid} (") and "may start CUDA" in outcome.why


def test_where_there_is_no_door_a_child_keeps_the_cell_on_its_gpus(
    child: subprocess.Popen[bytes],
) -> None:
    occupancy = Occupancy(lambda thread: True, refuse)
    assert isinstance(occupancy.leave(None), Kept)
