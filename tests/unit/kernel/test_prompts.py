"""In, Out and the underscores after a move: as they were, and Out holds the user's own objects."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.kernel.cells import Cell, CellLog
from replkernel.kernel.prompts import OUT_PREFIX, PromptsPart


class FakeHistory:
    """The fields of ReplicatedHistory that prompts read and set."""

    def __init__(self) -> None:
        self.cells = CellLog(self._finish)
        self.started = ""
        self.kernel_id = ""
        self.first = 0
        self.input_hist_parsed = [""]
        self.input_hist_raw = [""]
        self.output_hist: dict[int, Any] = {}
        self.out = self.output_hist
        self.output_hist_reprs: dict[int, str] = {}
        self.dir_hist: list[Any] = []
        self.outputs: dict[int, Any] = defaultdict(list)
        self.adopted: tuple[str, int] | None = None
        self.input_names: dict[str, str] = {}
        self._i = self._ii = self._iii = self._i00 = ""

    def recent_inputs(self) -> dict[str, str]:
        return {"_i": self._i, "_ii": self._ii, "_iii": self._iii}

    def adopt(self, started: str, kernel_id: str, execution_count: int) -> None:
        self.adopted = (started, execution_count)
        self.started = started

    def _finish(self, cells: list[Cell]) -> None:
        for cell in cells:
            if cell.listed and cell.number in self.output_hist:
                cell.has_out, cell.out = True, self.output_hist_reprs.get(cell.number)


class Notebook:
    """One replica's shell as far as prompts go."""

    def __init__(self) -> None:
        self.history = FakeHistory()
        self.space: dict[str, Any] = {"_": "", "__": "", "___": ""}
        self.hidden: dict[str, Any] = dict(self.space)
        self.hook = SimpleNamespace(_="", __="", ___="")
        self.shell = SimpleNamespace(
            user_ns=self.space, user_ns_hidden=self.hidden, displayhook=self.hook, push=self._push
        )
        self.part = PromptsPart(self.shell, self.history)  # type: ignore[arg-type]

    def _push(self, names: dict[str, Any], interactive: bool) -> None:
        self.space.update(names)
        self.hidden.update(names)

    def run(self, number: int, source: str, out: Any = None) -> None:
        """Do to the shell what IPython does for a cell."""
        self.history.started = self.history.started or "then"
        self.history.cells.add(Cell(number, source, listed=True))
        self.history.input_hist_parsed.append(source)
        self.history.input_hist_raw.append(source)
        if out is not None:
            self.hook.___, self.hook.__, self.hook._ = self.hook.__, self.hook._, out
            self._push({"_": out, "__": self.hook.__, "___": self.hook.___, f"_{number}": out}, False)
            self.history.output_hist[number] = out
            self.history.output_hist_reprs[number] = repr(out)

    def move(self, execution_count: int) -> Notebook:
        """Return another replica's shell that has taken this one's state."""
        other = Notebook()
        with self.part.exposed():
            values = {name: value for name, value in self.space.items() if not name.startswith("_i")}
        data = self.part.dump()
        assert data is not None
        for block in self.history.cells.blocks:
            packed = block.dump()
            assert packed is not None
            other.history.cells.block(block.cid).load(packed)
        with other.part.exposed(incoming=True):
            other.space.update(values)
            other.part.load(data)
        other.part.settle(execution_count)
        return other


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


def test_inputs_travel(notebook: Notebook) -> None:
    notebook.run(1, "a = 1")
    notebook.run(2, "b = 2\n")
    other = notebook.move(3)
    assert other.history.input_hist_raw == ["", "a = 1", "b = 2"]
    assert (other.space["_i"], other.space["_ii"], other.space["_i2"]) == ("a = 1", "", "b = 2")
    assert other.history.adopted == ("then", 3)


def test_outputs_are_the_users_objects(notebook: Notebook) -> None:
    shared = [1, 2]
    notebook.space["mine"] = shared
    notebook.run(1, "mine", out=shared)
    notebook.run(2, "'two'", out="two")
    other = notebook.move(3)
    assert other.history.output_hist == {1: shared, 2: "two"}
    assert other.history.output_hist[1] is other.space["mine"] is other.space["_1"]
    assert (other.hook._, other.hook.__) == ("two", shared)
    assert other.history.output_hist_reprs == {1: "[1, 2]", 2: "'two'"}


def test_ipython_keeps_updating_the_underscore(notebook: Notebook) -> None:
    notebook.run(1, "5", out=5)
    other = notebook.move(2)
    assert other.hidden["_"] is other.space["_"] is other.hook._


def test_an_underscore_that_the_user_took_stays_the_users(notebook: Notebook) -> None:
    notebook.run(1, "5", out=5)
    notebook.space["_"] = "gettext"
    other = notebook.move(2)
    assert other.space["_"] == "gettext"
    assert other.hook._ == 5
    assert other.hidden.get("_") != "gettext"


def test_a_deleted_output_stays_deleted(notebook: Notebook) -> None:
    notebook.run(1, "5", out=5)
    notebook.run(2, "6", out=6)
    del notebook.history.output_hist[2], notebook.space["_2"]
    assert notebook.move(3).history.output_hist == {1: 5}


def test_an_output_without_its_name_travels(notebook: Notebook) -> None:
    notebook.run(1, "[5]", out=[5])
    notebook.space["_1"] = "something else"
    other = notebook.move(2)
    assert other.history.output_hist == {1: [5]}
    assert other.space["_1"] == "something else"
    assert not [name for name in other.space if name.startswith(OUT_PREFIX)]


def test_entries_of_out_under_keys_of_the_users_own_travel(notebook: Notebook) -> None:
    notebook.run(1, "5", out=5)
    notebook.history.output_hist["mine"] = kept = [1]  # type: ignore[index]
    notebook.space["kept"] = kept
    other = notebook.move(2)
    assert other.history.output_hist == {1: 5, "mine": [1]}
    assert other.history.output_hist["mine"] is other.space["kept"]  # type: ignore[index]
    assert not [name for name in other.space if name.startswith(OUT_PREFIX)]
    del other.history.output_hist["mine"]  # type: ignore[arg-type]
    assert other.move(3).history.output_hist == {1: 5}


def test_culled_outputs_are_gone(notebook: Notebook) -> None:
    for number in range(1, 6):
        notebook.run(number, str(number), out=number * 100)
    for number in (1, 2, 3):
        del notebook.history.output_hist[number], notebook.space[f"_{number}"]
    assert notebook.move(6).history.output_hist == {4: 400, 5: 500}


def test_inputs_that_the_user_cleared_stay_cleared(notebook: Notebook) -> None:
    notebook.run(1, "a = 1")
    del notebook.history.input_hist_parsed[:], notebook.history.input_hist_raw[:]
    other = notebook.move(2)
    assert other.history.input_hist_raw == []
    notebook.run(2, "b = 2")
    assert notebook.move(3).history.input_hist_raw == ["b = 2"]


def test_history_says_the_same_until_something_changes(notebook: Notebook) -> None:
    notebook.run(1, "5", out=5)
    before = notebook.part.dump()
    notebook.run(2, "6", out=6)
    assert notebook.part.dump() == before


def test_a_name_that_was_pushed_to_be_hidden_is_hidden_elsewhere_until_it_is_shown_again() -> None:
    first = Notebook()
    first.run(1, "push")
    first._push({"quiet": [1], "none": None}, False)
    first.space["shown"] = [2]
    second = first.move(2)
    assert [name for name in ("quiet", "none", "shown") if name in second.hidden] == ["quiet", "none"]
    assert second.hidden["quiet"] is second.space["quiet"]
    second.run(2, "show")
    del second.hidden["quiet"]
    third = second.move(3)
    assert "quiet" not in third.hidden
    assert "none" in third.hidden
    third.space["none"] = 5
    assert "none" not in third.move(4).hidden


@pytest.fixture
def restless() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Return what has another thread do something over and over; threads take turns all the time."""
    done, threads = threading.Event(), []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def meanwhile(act: Callable[[], Any]) -> None:
        def work() -> None:
            while not done.is_set():
                act()

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield meanwhile
    done.set()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)


def test_a_subshell_may_bind_names_while_state_comes_in(
    restless: Callable[[Callable[[], Any]], None],
) -> None:
    notebook = Notebook()
    notebook.space.update({f"v{number}": number for number in range(1000)})

    restless(lambda: notebook.space.update(found=1))
    restless(lambda: notebook.space.pop("found", None))
    for _ in range(300):
        with notebook.part.exposed(incoming=True):
            pass


def test_the_shells_names_are_never_taken_for_the_users_while_a_subshell_looks_at_them(
    restless: Callable[[Callable[[], Any]], None],
) -> None:
    notebook = Notebook()
    names = {f"_i{number}": f"source {number}" for number in range(1, 300)}
    notebook.history.input_names = names
    notebook.space.update({**names, "_i7": "the user's own"})
    own = notebook.part.own_names
    own.refresh()
    restless(own.refresh)
    for _ in range(300):
        assert names.keys() - own == {"_i7"}


@pytest.mark.parametrize("late", ["", "@cells/0000", "@cells/0008"])
def test_a_replica_that_follows_a_long_notebook_has_all_of_its_inputs(notebook: Notebook, late: str) -> None:
    other, told = Notebook(), dict[str, bytes]()
    for number in range(1, 200):
        notebook.run(number, f"x = {number}", out=number if number % 5 == 0 else None)
        if number % 3 and number < 190:
            continue
        with notebook.part.exposed():
            data = notebook.part.dump()
        assert data is not None
        for block in notebook.history.cells.blocks:
            packed = block.dump() or b""
            if told.get(block.cid) != packed and (block.cid != late or number >= 190):
                told[block.cid] = packed
                other.history.cells.block(block.cid).load(packed)
        with other.part.exposed(incoming=True):
            other.space.update({f"_{n}": n for n in range(5, number + 1, 5)})
            other.part.load(data)
        other.part.settle(number + 1)
        if late and number < 190:
            continue
        assert other.history.input_hist_raw == notebook.history.input_hist_raw
        assert all(other.space[f"_i{n}"] == f"x = {n}" for n in range(1, number + 1))
        assert other.history.output_hist == notebook.history.output_hist
        assert other.history.output_hist_reprs == notebook.history.output_hist_reprs
        assert (other.space["_i"], other.space["_ii"]) == (f"x = {number - 1}", f"x = {number - 2}")
        other.part.own_names.refresh()
        assert {name for name in other.space if name.startswith("_i")} <= other.part.own_names
