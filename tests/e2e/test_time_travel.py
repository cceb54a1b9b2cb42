"""Going back: the notebook is as after an earlier cell, on every replica, and nothing ran again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.breadth import first_of
from tests.support.live import Live, eventually, kernel
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope

__all__ = ["_kernel_in_reach", "_own_directories", "place"]


@pytest.fixture(scope=shared_scope)
def live(place: Path) -> Iterator[Live]:
    with kernel(place) as live:
        yield live


def test_undo_and_redo_take_values_aliases_and_process_state_along(live: Live) -> None:
    live.run("import os, random; a = [1]; b = a; random.seed(5); home = os.getcwd(); ran = 0")
    live.run("drawn = random.random()")
    live.run("a.append(2); c = 3; os.chdir('/'); os.environ['GONE'] = 'yes'; ran += 1")
    assert "is back at cell" in live.value("%replkernel undo")
    assert live.value(
        "print(a, b is a, 'c' in globals(), os.getcwd() == home, 'GONE' in os.environ, ran)"
    ) == ("[1] True False True False 0")
    assert live.value("a.append(9); print(b)") == "[1, 9]"
    live.value("%replkernel undo")
    assert "is back at cell" in live.value("%replkernel undo")
    assert live.value("print('drawn' in globals(), a)") == "False [1]"
    drawn = live.value("import random; print(random.random() == random.Random(5).random())")
    assert drawn == "True"


def test_redo_goes_forward_until_a_cell_changes_something(live: Live) -> None:
    live.run("x = 1")
    live.run("x = 2")
    live.run("x = 3")
    live.value("%replkernel undo 2")
    assert live.value("print(x)") == "1"
    live.value("%replkernel redo")
    assert live.value("print(x)") == "2"
    live.value("%replkernel redo")
    assert live.value("print(x)") == "3"
    assert "Nothing was undone" in live.run("%replkernel redo").err


def test_results_and_errors_that_are_only_shown_are_no_changes_to_take_back(live: Live) -> None:
    live.run("data = [1, 2]")
    live.run("data.pop()")
    live.run("dta")
    live.run("len(data)")
    live.run("data")
    live.run("%replkernel undo many")
    live.value("%replkernel undo")
    assert live.value("print(data)") == "[1, 2]"
    live.run("len(data)")
    live.run("dta")
    live.value("%replkernel redo")
    assert live.value("print(data)") == "[1]"


def test_cells_that_only_look_at_variables_are_no_changes_to_take_back(live: Live) -> None:
    live.run("import pandas as pd; frame = pd.DataFrame({'a': range(9)})")
    live.run("frame['a'] = 0")
    live.run("frame.head()")
    live.run("frame")
    live.run("print(frame.describe())")
    live.value("%replkernel undo")
    assert live.value("print(frame['a'].sum())") == "36"


def test_the_last_result_goes_on_after_one_was_taken_back(live: Live) -> None:
    live.run("5 * 5; q = 1")
    live.run("q = 2; q * 3")
    live.value("%replkernel undo")
    live.run("7 * 7")
    assert live.value("print(_)") == "49"


def test_a_cells_number_means_the_state_after_that_cell_or_is_refused(live: Live) -> None:
    numbered = "n = {}; print(len(In) - 1)"
    first = int(live.value(numbered.format(1)))
    live.run("n = 2")
    live.value("%replkernel undo")
    live.run("print(n)\n%replkernel sync")
    live.run("n = 5")
    live.value(f"%replkernel goto {first + 3}")
    assert live.value("print(n)") == "1", "that cell saw what was left of an undo"
    assert "There is no point" in live.run("%replkernel goto 99999").err


def test_a_name_is_a_marks_or_a_branchs(live: Live) -> None:
    live.run("p = 1; p")
    live.run("%replkernel branch named")
    assert "is a branch" in live.run("%replkernel mark named").err
    live.run("%replkernel mark spot")
    assert "There is already a point named" in live.run("%replkernel branch spot").err
    assert "switch to another one" in live.run("%replkernel unmark named").err
    live.value("%replkernel switch main")


def test_an_undo_names_the_generator_that_it_leaves_as_it_is(live: Live) -> None:
    live.run("numbers = (i for i in range(10)); first = next(numbers)")
    live.run("first = next(numbers)")
    assert "`numbers` (generator)" in live.value("%replkernel undo")
    live.run("del numbers")


def test_prints_are_seen_again_once_a_replaced_stdout_is_undone(live: Live) -> None:
    live.run("import io, sys; kept = 1")
    live.run("sys.stdout = io.StringIO(); kept = 2")
    assert live.value("print('unseen')") == ""
    live.run("%replkernel undo --yes")
    assert live.value("print(kept)") == "1"


def test_marks_branches_and_comparison(live: Live) -> None:
    live.run("y = 1")
    live.run("%replkernel mark start")
    live.run("y = 'main'; only_main = 1")
    live.value("%replkernel goto start")
    live.run("%replkernel branch other")
    live.run("y = 'other'")
    compared = live.value("%replkernel compare main other")
    assert "'main' (" in compared
    assert "'other' (" in compared
    live.value("%replkernel switch main")
    assert live.value("print(y, only_main)") == "main 1"
    live.value("%replkernel switch other")
    assert live.value("print(y, 'only_main' in globals())") == "other False"
    assert "> other" in live.value("%replkernel branches")
    python = "[(d.name, d.was, d.now) for d in replkernel.compare('main', 'other') if d.name == 'y']"
    told = live.value(f"import replkernel; print({python}, 'other' in replkernel.branches())")
    assert told == "[('y', \"'main'\", \"'other'\")] True"
    told = live.value("%replkernel history")
    assert "start" in told
    assert "only_main" in told
    assert live.value("import replkernel; print(replkernel.history().branch)") == "other"
    assert "There is no point" in live.run("%replkernel goto nowhere").err


def test_another_process_goes_on_from_the_state_that_was_undone(live: Live) -> None:
    live.run("import os; z = [1]")
    live.run("z.append(2); later = 1")
    live.value("%replkernel undo")
    live.run("%replkernel sync")
    before = live.value("print(os.getpid())")
    live.run("os.kill(os.getpid(), 9)")
    assert live.value("print(z, 'later' in globals())") == "[1] False"
    assert live.value("print(os.getpid())") != before
    live.value("%replkernel redo")
    assert live.value("print(z, later)") == "[1, 2] 1"


DEADLY = """import numpy, os, threading
class Deadly:
    def __init__(self, changed): self.changed = changed
    def __replkernel_dump__(self): return self.changed
    @classmethod
    def __replkernel_load__(cls, changed):
        if not changed and os.path.exists({mark!r}) and open({mark!r}).read() == str(os.getpid()):
            os.remove({mark!r})
            kill = os.getpid(), 9
            threading.Timer({delay_s}, os.kill, kill).start() if {delay_s} else os.kill(*kill)
        return cls(changed)
"""
"""Kills the process of the mark, a moment after it has begun to go back to what was not changed yet.

Others may load that as well, for they lag behind.
"""


@pytest.mark.parametrize("delay_s", first_of(0.0, 0.004, 0.015, 0.05))
def test_a_process_that_is_killed_while_it_goes_back_leaves_one_of_the_two_points(
    live: Live, tmp_path: Path, delay_s: float
) -> None:
    mark = tmp_path / "deadly"
    live.run(DEADLY.format(mark=str(mark), delay_s=delay_s))
    live.run("first = numpy.zeros(500_000); middle = Deadly(0); second = [0] * 1000; third = 0")
    live.run("first += 1; middle = Deadly(1); second[:] = [1] * 1000; third = 1")
    live.run("%replkernel sync")
    executor = live.value("print(os.getpid())")
    mark.write_text(executor)
    live.run("%replkernel undo")
    assert not mark.exists(), "it had begun to go back"
    eventually(lambda: not psutil.pid_exists(int(executor)), "its end")
    live.run("pass")
    seen = live.value("print(float(first.min()), float(first.max()), *set(second), third, middle.changed)")
    assert seen in ("0.0 0.0 0 0 0", "1.0 1.0 1 1 1")


def test_an_undo_names_variables_that_cannot_be_copied_before_it_loses_any(live: Live) -> None:
    live.run("older = 1")
    live.run("%replkernel mark before-plain")
    live.run("plain = 1")
    live.run("import socket; door = socket.socket(); plain = 2")
    told = live.run("%replkernel undo").err
    assert "`door`" in told
    assert "--yes" in told
    assert live.value("print(plain)") == "2"
    assert "door" not in live.value("%replkernel undo --yes")
    assert live.value("print(plain, 'door' in globals())") == "1 False"
    assert "door" not in live.value("%replkernel pins")
    assert live.run("%replkernel goto before-plain").err == "", "nobody is asked about what is gone"
    assert live.value("print('plain' in globals())") == "False"


THREAD = """
def work():
    held = counts
    for n in range(1, 5):
        while not os.path.exists(f'{place}/go{{n}}'):
            time.sleep(0.01)
        counts.append(n)
        held.append(-n)
        open(f'{place}/went{{n}}', 'w').close()
threading.Thread(target=work, daemon=True).start()
"""


def test_a_threads_changes_are_undone_with_the_next_cell_and_the_thread_goes_on(
    live: Live, tmp_path: Path
) -> None:
    def let_it_go(number: int) -> None:
        (tmp_path / f"go{number}").touch()
        eventually((tmp_path / f"went{number}").exists, "the thread's change")

    live.run("import os, threading, time; counts = []; mine = 0")
    live.run(THREAD.format(place=tmp_path))
    live.run("%replkernel sync")
    let_it_go(1)
    assert live.value("print(len(counts))") == "2", "that is a step, though its cell only looks"
    assert "`thread Thread-" in live.value("%replkernel undo"), "the thread goes on, and is named"
    assert live.value("print(counts)") == "[]"
    let_it_go(2)
    assert live.value("print(counts)") == "[2]", "what it holds itself is not the notebook's any more"
    live.run("mine = 1\n%replkernel sync")
    let_it_go(3)
    live.run("mine = 2")
    live.value("%replkernel undo")
    assert live.value("print(counts, mine)") == "[2] 1"
    told = live.run("%replkernel undo 3").err
    assert "`thread Thread-" in told, "to before its start only with --yes"
    assert "--yes" in told
    live.value("%replkernel undo 3 --yes")
    assert live.value("print(counts, mine, 'work' in globals())") == "[] 0 False"
    let_it_go(4)
    assert live.value("print(counts)") == "[4]"
