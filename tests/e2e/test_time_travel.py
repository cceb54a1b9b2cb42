"""Going back: the notebook is as after an earlier cell, on every replica, and nothing ran again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.live import Live, kernel


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with kernel(tmp_path_factory.mktemp("travel")) as live:
        yield live


def test_undo_and_redo_take_values_aliases_and_process_state_along(live: Live) -> None:
    live.run("import os, random; a = [1]; b = a; random.seed(5); home = os.getcwd(); ran = 0")
    live.run("drawn = random.random()")
    live.run("a.append(2); c = 3; os.chdir('/'); os.environ['GONE'] = 'yes'; ran += 1")
    assert "as after cell" in live.value("%replkernel undo")
    assert live.value(
        "print(a, b is a, 'c' in globals(), os.getcwd() == home, 'GONE' in os.environ, ran)"
    ) == ("[1] True False True False 0")
    assert live.value("a.append(9); print(b)") == "[1, 9]"
    live.value("%replkernel undo")
    assert "as after cell" in live.value("%replkernel undo")
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


def test_marks_branches_and_comparison(live: Live) -> None:
    live.run("y = 1")
    live.run("%replkernel mark start")
    live.run("y = 'main'; only_main = 1")
    live.value("%replkernel goto start")
    live.run("%replkernel branch other")
    live.run("y = 'other'")
    assert "y" in live.value("%replkernel compare main other")
    live.value("%replkernel switch main")
    assert live.value("print(y, only_main)") == "main 1"
    live.value("%replkernel switch other")
    assert live.value("print(y, 'only_main' in globals())") == "other False"
    assert "> other" in live.value("%replkernel branches")
    told = live.value("%replkernel history")
    assert "start" in told
    assert "only_main" in told
    assert live.value("import replkernel; print(replkernel.history().branch)") == "other"
    assert "There is no point" in live.run("%replkernel goto nowhere").err


def test_another_replica_goes_on_from_the_state_that_was_undone(live: Live) -> None:
    live.run("z = [1]")
    live.run("z.append(2); later = 1")
    live.value("%replkernel undo")
    live.run("%replkernel sync")
    before = live.run("import os; print(z)").replica
    live.run("os.kill(os.getpid(), 9)")
    after = live.run("print(z, 'later' in globals())")
    assert after.replica != before
    assert after.out.strip() == "[1] False"
    live.value("%replkernel redo")
    assert live.value("print(z, later)") == "[1, 2] 1"
