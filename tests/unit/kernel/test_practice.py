"""Making jedi ready beforehand never keeps anybody waiting, and never spoils anything where it is ended."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.kernel import practice

CUT_SHORT = """
import sys, time
from replkernel.kernel import practice

path = list(sys.path)
for part in range(1, 5):
    if part % 2:
        until = time.monotonic() + part / 10
        done = practice.practise_until(lambda: time.monotonic() > until)
        assert not done or part > 1, "it takes far longer in a new home"
    else:
        standby = practice.Practice()
        standby.begin()
        time.sleep(part / 10)
        standby.end()
    assert sys.path == path, part
assert practice.practise_until(lambda: False)
import jedi
names = {each.name for each in jedi.Interpreter("''.re", [{}]).complete()}
assert "replace" in names, names
"""


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], practice.Practice]]:
    """Return what makes a standby that practises something; it practises no more at the end."""
    made = practice.Practice()

    def practises(what: Callable[[], None]) -> practice.Practice:
        began = threading.Event()
        monkeypatch.setattr(practice, "practise", lambda: (began.set(), what()))
        monkeypatch.setattr(practice, "_done", False)
        made.begin()
        assert began.wait(10)
        return made

    yield practises
    made.end()


def _for_ever() -> None:
    while True:
        len("")


def _practises() -> bool:
    return any(thread.name == "Practice" for thread in threading.enumerate())


def test_who_has_something_to_do_ends_a_practice_and_finds_everything_as_before(
    standby: Callable[[Callable[[], None]], practice.Practice],
) -> None:
    before = (sys.path, sys.getrecursionlimit(), warnings.filters, warnings.showwarning)
    changed = threading.Event()

    def never_ends() -> None:
        sys.path, warnings.filters = ["elsewhere"], []  # type: ignore[misc]
        sys.setrecursionlimit(5000)
        changed.set()
        _for_ever()

    practises = standby(never_ends)
    assert changed.wait(10)
    practises.end()
    assert not _practises()
    assert (sys.path, sys.getrecursionlimit(), warnings.filters, warnings.showwarning) == before
    assert sys.path is before[0]


def test_a_practice_that_was_ended_begins_anew(
    standby: Callable[[Callable[[], None]], practice.Practice],
) -> None:
    standby(_for_ever).end()
    standby(_for_ever)
    assert _practises()


@pytest.mark.parametrize("module", ["parso.cache", importlib._bootstrap.__name__])
def test_a_file_of_jedis_cache_is_written_to_its_end_and_so_is_an_import(
    standby: Callable[[Callable[[], None]], practice.Practice], module: str
) -> None:
    done: list[str] = []
    names = {"__name__": module, "sleep": time.sleep, "done": done}
    exec("def part():\n    for _ in range(30): sleep(0.01)\n    done.append('all of it')", names)

    def goes_on() -> None:
        names["part"]()  # type: ignore[operator]
        _for_ever()

    standby(goes_on).end()
    assert done == ["all of it"]


def test_jedi_works_after_practices_that_were_cut_short_in_a_new_home(tmp_path: Path) -> None:
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHORT], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    files = list(tmp_path.rglob("*.pkl"))
    assert files
    for path in files:
        with path.open("rb") as file:
            pickle.load(file)
