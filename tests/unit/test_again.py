"""Which failed tests are tried once more."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tests.again import KEY, MOST, MOST_MODULES, LastRun, chosen, refusal

E2E, UNIT = "tests/e2e/test_live.py::test_a[b::c]", "tests/unit/test_again.py::test_d"


class Kept(dict[str, Any]):
    """Stands in for pytest's cache."""

    def set(self, key: str, value: object) -> None:
        self[key] = value


def run(*reports: tuple[str, str, bool], exitstatus: int | None = pytest.ExitCode.TESTS_FAILED) -> object:
    """Return what is kept of a run of which pytest reports a test, its part, and whether that passed."""
    kept = Kept({KEY: {"tests/unit/test_older.py::test_x": ["tests/unit/test_older.py::test_x"]}})
    last = LastRun(kept)  # type: ignore[arg-type]
    last.pytest_sessionstart()
    for name, when, passed in reports:
        outcome: Any = "passed" if passed else "failed"
        if when == "collect":
            last.pytest_collectreport(pytest.CollectReport(name, outcome, None, None))
        else:
            last.pytest_runtest_logreport(
                pytest.TestReport(name, ("", 0, ""), {}, outcome, None, cast("Any", when))
            )
    if exitstatus is not None:
        last.pytest_sessionfinish(exitstatus)
    return kept[KEY]


def each(*names: str) -> dict[str, list[str]]:
    return {name: [name] for name in names}


def test_what_failed_in_the_last_run_is_kept_and_nothing_older() -> None:
    passed = (UNIT, "setup", True), (UNIT, "call", True)
    assert run(*passed, (E2E, "setup", True), (E2E, "call", False), (E2E, "teardown", True)) == each(E2E)
    assert run((E2E, "setup", False)) == each(E2E)
    assert run(*passed, exitstatus=pytest.ExitCode.OK) == {}


def test_a_module_that_failed_at_its_end_runs_again_as_a_whole() -> None:
    first, last = "tests/unit/test_m.py::test_leaves", "tests/unit/test_m.py::test_last"
    reports = [
        (name, when, (name, when) != (last, "teardown"))
        for name in (first, UNIT, last)
        for when in ("setup", "call", "teardown")
    ]
    assert run(*reports) == {last: [first, last]}


def test_of_a_run_that_was_broken_off_only_modules_that_were_not_read_are_kept() -> None:
    unread, interrupted = "tests/unit/test_again.py", pytest.ExitCode.INTERRUPTED
    assert run((E2E, "call", False), (unread, "collect", False), exitstatus=interrupted) == each(unread)
    assert run((E2E, "call", False), exitstatus=pytest.ExitCode.INTERNAL_ERROR) == {}
    assert run((E2E, "call", False), exitstatus=None) == {}


def test_those_below_the_folders_are_chosen_and_no_others() -> None:
    text = json.dumps(each(UNIT, E2E, "tests/e2e_not/test_x.py::test_y"))
    assert list(chosen(text, ["tests/e2e", "tests/unit/"])) == [E2E, UNIT]
    assert chosen(text, ["tests/e2e"]) == each(E2E)
    assert chosen("{}", ["tests/e2e"]) == {}


def test_those_whose_file_is_gone_are_not_chosen() -> None:
    assert chosen(json.dumps(each(UNIT, "tests/unit/test_gone.py::test_x")), ["tests"]) == each(UNIT)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_cache_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        chosen(text, ["tests"])


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([E2E] * (MOST - 1) + [UNIT], ""),
        ([E2E] * (MOST + 1), "13 tests of 1 module failed, and none is tried again: more than 12 tests"),
        ([f"tests/unit/test_{number}.py::test_a" for number in range(MOST_MODULES)], ""),
        (
            [f"tests/unit/test_{number}.py::test_a" for number in range(MOST_MODULES + 1)],
            "4 tests of 4 modules failed",
        ),
        ([], "No failed test is known"),
        ([E2E, "tests/unit/test_again.py"], "tests/unit/test_again.py could not be read"),
    ],
)
def test_many_failures_and_modules_that_do_not_load_are_no_chance(failed: list[str], why: str) -> None:
    assert refusal(failed).startswith(why) or why in refusal(failed)
    assert bool(refusal(failed)) == bool(why)
