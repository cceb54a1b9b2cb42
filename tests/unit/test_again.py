"""Which failed tests are tried once more."""

from __future__ import annotations

import json

import pytest

from tests.again import MOST, MOST_MODULES, chosen, refusal

E2E, UNIT = "tests/e2e/test_live.py::test_a[b::c]", "tests/unit/test_again.py::test_d"


def test_those_below_the_folders_are_chosen_and_no_others() -> None:
    text = json.dumps({UNIT: True, E2E: True, "tests/e2e_not/test_x.py::test_y": True})
    assert chosen(text, ["tests/e2e", "tests/unit/"]) == [E2E, UNIT]
    assert chosen(text, ["tests/e2e"]) == [E2E]
    assert chosen("{}", ["tests/e2e"]) == []


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_cache_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        chosen(text, ["tests"])


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([E2E] * (MOST - 1) + [UNIT], ""),
        ([E2E] * (MOST + 1), "13 tests of 1 modules failed: that is no chance"),
        ([f"tests/unit/test_{number}.py::test_a" for number in range(MOST_MODULES)], ""),
        ([f"tests/unit/test_{number}.py::test_a" for number in range(MOST_MODULES + 1)], "that is no chance"),
        ([], "No test is known to have failed"),
        ([E2E, "tests/unit/test_again.py"], "tests/unit/test_again.py could not be read"),
    ],
)
def test_many_failures_and_modules_that_do_not_load_are_no_chance(failed: list[str], why: str) -> None:
    assert refusal(failed).startswith(why) or why in refusal(failed)
    assert bool(refusal(failed)) == bool(why)
