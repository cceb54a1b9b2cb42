"""A running cell stands still where its main thread is, and goes on when it has a lease again."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator

import msgspec
import pytest

from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.kernel.cell_pause import OVER, PART, PLACE, CellPause
from replkernel.kernel.hand_over import SIGNAL
from replkernel.leasing.notebook import PausedOn
from replkernel.protocol.agent_to_process import StandStill

ORDER = StandStill("l1", 30.0, "H100")


class Cell:
    """A cell on this thread, on a GPU."""

    def __init__(self) -> None:
        self.outcome: Outcome = Moved(1000)
        self.left: list[PausedOn] = []
        self.refused: list[tuple[str, str]] = []
        self.heard = threading.Event()
        self.interrupt = False
        self.takes: Callable[[], object] = lambda: None
        self.pause = CellPause(self._suspend, self._go_on, self._refuse, contextlib.nullcontext)
        signal.signal(SIGNAL, lambda number, frame: self.pause.visit(frame))

    def _suspend(self) -> Outcome:
        assert threading.current_thread() is threading.main_thread()
        self.takes()
        return self.outcome

    def _go_on(self, left: PausedOn) -> None:
        self.left.append(left)
        self.heard.set()
        if self.interrupt:
            raise KeyboardInterrupt

    def _refuse(self, lease: str, why: str) -> None:
        self.refused.append((lease, why))
        self.heard.set()

    def told(self, order: StandStill = ORDER) -> None:
        threading.Thread(target=self.pause.ask, args=(order,)).start()


@pytest.fixture
def cell() -> Iterator[Cell]:
    before = signal.getsignal(SIGNAL)
    made = Cell()
    yield made
    made.pause.over()
    signal.signal(SIGNAL, before)


def test_a_cell_leaves_its_gpus_and_says_which_and_how_far_it_had_come(cell: Cell) -> None:
    cell.pause.begins()
    cell.told()
    assert cell.heard.wait(30.0), "the main thread waits here, as a cell may"
    (left,) = cell.left
    assert (left.lease, left.times, left.gpu_model, left.paused_s) == ("l1", 1, "H100", 0.0)
    assert left.ran_s > 0
    cell.heard.clear()
    cell.told(StandStill("l2", 30.0))
    assert cell.heard.wait(30.0)
    assert (cell.left[1].lease, cell.left[1].times) == ("l2", 2)
    assert cell.left[1].ran_s > left.ran_s and cell.left[1].paused_s > 0
    assert cell.refused == []


def test_an_order_that_is_told_again_is_the_same(cell: Cell) -> None:
    cell.pause.begins()
    cell.told()
    assert cell.heard.wait(30.0)
    cell.pause.ask(ORDER)
    cell.heard.clear()
    cell.told(StandStill("l2", 30.0))
    assert cell.heard.wait(30.0)
    assert ([each.lease for each in cell.left], cell.refused) == (["l1", "l2"], [])


def test_an_interrupt_while_it_stands_still_breaks_the_cell(cell: Cell) -> None:
    cell.interrupt = True
    cell.pause.begins()

    def compute() -> None:
        cell.told()
        time.sleep(30.0)

    with pytest.raises(KeyboardInterrupt):
        compute()


@pytest.mark.parametrize(
    ("outcome", "why"),
    [(Kept("the driver cannot"), "the driver cannot"), (Moved(), "")],
    ids=["it cannot leave", "it can"],
)
def test_a_cell_that_cannot_leave_its_gpus_says_why_and_computes_on(
    cell: Cell, outcome: Outcome, why: str
) -> None:
    cell.outcome = outcome
    cell.pause.begins()
    cell.told()
    assert cell.heard.wait(30.0)
    assert cell.refused == ([("l1", why)] if why else [])


def test_no_cell_or_one_with_a_part_of_a_gpu_is_not_paused(cell: Cell) -> None:
    cell.pause.ask(ORDER)
    cell.pause.begins(PART)
    cell.pause.ask(ORDER)
    assert cell.refused == [("l1", OVER), ("l1", PART)]


def test_below_a_library_of_gpus_nothing_is_moved_and_that_is_said_in_time(cell: Cell) -> None:
    module = types.ModuleType("torch.nn.modules")
    exec("def forward(told, heard): told(); heard.wait(30.0)", module.__dict__)
    cell.pause.begins()
    module.forward(lambda: cell.told(StandStill("l1", 1.3)), cell.heard)
    assert (cell.left, cell.refused) == ([], [("l1", PLACE)])


def test_a_pause_that_outlasts_its_time_is_taken_and_not_refused_as_well(cell: Cell) -> None:
    """The state of a large model may take longer to leave than the scheduler waits."""
    cell.takes = lambda: cell.heard.wait(1.0)
    cell.pause.begins()
    cell.told(StandStill("l1", 1.3))
    while not cell.left:
        time.sleep(0.01)
    assert ([each.lease for each in cell.left], cell.refused) == (["l1"], [])
    cell.heard.clear()
    cell.takes = lambda: None
    cell.told(StandStill("l2", 30.0))
    assert cell.heard.wait(30.0), "nothing is left of the first order"
    assert ([each.lease for each in cell.left], cell.refused) == (["l1", "l2"], [])


def test_an_order_ends_with_the_cell_that_it_was_for(cell: Cell) -> None:
    """With Run All the next cell begins at once: its state stays where it is."""
    module = types.ModuleType("torch.nn.modules")
    exec("def forward(begun, rest): begun(); rest()", module.__dict__)
    cell.pause.begins()

    def next_cell() -> None:
        cell.pause.over()
        cell.pause.begins()

    module.forward(lambda: cell.pause.ask(ORDER), next_cell)
    assert cell.heard.wait(30.0)
    assert (cell.left, cell.refused) == ([], [("l1", OVER)])


def test_a_cell_of_weeks_still_asks_what_its_router_can_read(cell: Cell) -> None:
    cell.pause.begins()
    cell.pause._since -= 2e6
    cell.told()
    assert cell.heard.wait(30.0)
    assert msgspec.json.decode(msgspec.json.encode(cell.left[0]), type=PausedOn) == cell.left[0]
