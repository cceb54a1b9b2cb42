"""GPUs are given back in a cell without a lease: wherever its main thread waits, where that is safe."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import types
from collections.abc import Iterator

import pytest

from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.kernel.hand_over import SIGNAL, HandOver


class Cell:
    """A cell on this thread, whose process has state on GPUs."""

    def __init__(self) -> None:
        self.outcome: Outcome = Moved(1000)
        self.tries: list[threading.Thread] = []
        self.told = threading.Event()
        self.leases: list[str] = []
        self.hand_over = HandOver(self._suspend, self._tell, contextlib.nullcontext)

    def _suspend(self) -> Outcome:
        self.tries.append(threading.current_thread())
        return self.outcome

    def _tell(self, lease: str, moved: Moved) -> None:
        self.leases.append(lease)
        self.told.set()

    def asked(self, lease: str) -> None:
        threading.Thread(target=self.hand_over.ask, args=(lease,)).start()


@pytest.fixture
def cell() -> Iterator[Cell]:
    before = signal.getsignal(SIGNAL)
    made = Cell()
    yield made
    made.hand_over.over()
    signal.signal(SIGNAL, before)


def test_a_cell_that_waits_for_a_lock_gives_its_gpus_back(cell: Cell) -> None:
    cell.hand_over.begins()
    cell.asked("l1")
    assert cell.told.wait(30.0), "the main thread waits here, as a cell may"
    assert cell.tries == [threading.main_thread()] and cell.leases == ["l1"]
    assert cell.hand_over.was_done("l1") and not cell.hand_over.was_done("l1")


def test_two_leases_that_are_asked_back_together_are_both_told(cell: Cell) -> None:
    cell.hand_over.begins()
    cell.asked("l1")
    cell.asked("l2")
    until = time.monotonic() + 30.0
    while len(cell.leases) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(cell.leases) == ["l1", "l2"]


def test_below_a_library_that_may_have_storages_in_its_hands_nothing_is_moved(cell: Cell) -> None:
    torch = types.ModuleType("torch.somewhere")
    exec("def wait(asked, event):\n    asked('l1')\n    return event.wait(0.5)\n", vars(torch))
    cell.hand_over.begins()
    assert not torch.wait(cell.asked, cell.told) and not cell.tries
    assert cell.told.wait(30.0), "and is when the library has returned"


def test_gpus_that_cannot_be_left_are_given_back_at_the_cells_end(cell: Cell) -> None:
    cell.outcome = Kept("a thread runs")
    cell.hand_over.begins()
    cell.asked("l1")
    until = time.monotonic() + 30.0
    while not cell.tries and time.monotonic() < until:
        time.sleep(0.01)
    assert not cell.told.wait(0.2) and not cell.hand_over.was_done("l1")


def test_nothing_happens_where_no_such_cell_runs(cell: Cell) -> None:
    cell.hand_over.begins()
    cell.hand_over.over()
    cell.hand_over.ask("l1")
    signal.raise_signal(SIGNAL)
    assert not cell.tries


def test_a_handler_of_the_notebooks_own_is_left_alone(cell: Cell) -> None:
    heard: list[int] = []
    signal.signal(SIGNAL, lambda number, frame: heard.append(number))
    cell.hand_over.begins()
    cell.hand_over.ask("l1")
    assert not cell.told.wait(0.2) and not heard
