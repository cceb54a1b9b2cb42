"""What users say of variables beforehand: a transient one stays where it is, and binds nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from notebook import Notebook, pair

from replkernel.errors import StateLostError
from replkernel.namespace import hints

MARK = "import replkernel\ncache = {'big': bytearray(1_000_000)}\nreplkernel.transient(cache)\nx = 1"


@pytest.fixture(autouse=True)
def nothing_marked() -> Iterator[None]:
    yield
    hints.transient.clear()


def test_a_transient_variable_ships_no_data_and_no_pin() -> None:
    one, _ = pair()
    delta = one.run(MARK, 1)
    assert not any(component.pins for component in delta.components)
    assert sum(component.state_bytes for component in delta.components) < 10_000


def test_a_transient_variable_elsewhere_says_which_cell_makes_it() -> None:
    one, two = pair()
    two.take(one.run(MARK, 1))
    assert two["x"] == 1
    with pytest.raises(StateLostError, match=r"'cache' is a dict .* marked it transient.*cell \[1\]"):
        len(two["cache"])


def test_a_transient_variable_that_changes_is_not_told_again() -> None:
    one, _ = pair()
    one.run(MARK, 1)
    assert one.run("cache['more'] = bytearray(2_000_000)", 2).components == ()


def test_what_shares_with_a_transient_variable_keeps_its_own() -> None:
    one, two = pair()
    two.take(one.run("rows = [1, 2]\n" + MARK.replace("{'big': bytearray(1_000_000)}", "{'rows': rows}"), 1))
    two.take(one.run("rows.append(3)", 2))
    assert two["rows"] == [1, 2, 3]
    assert hints.transient == {"cache": None}


def test_a_transient_variable_that_is_reset_is_none_everywhere() -> None:
    one, two = pair()
    two.take(one.run(MARK, 1))
    two.take(one.run("cache = None", 2))
    assert two["cache"] is None


def test_a_variable_that_is_marked_no_more_travels() -> None:
    one, two = pair()
    two.take(one.run(MARK, 1))
    two.take(one.run("replkernel.transient(cache, on=False)", 2))
    assert len(two["cache"]["big"]) == 1_000_000


def test_a_transient_variable_bound_anew_elsewhere_is_transient_there() -> None:
    one, two = pair()
    two.take(one.run(MARK, 1))
    delta = two.run("cache = {'big': bytearray(3_000_000)}", 2)
    assert sum(component.state_bytes for component in delta.components) < 10_000
    one.take(delta)
    with pytest.raises(StateLostError, match=r"cell \[2\] on replica r2"):
        len(one["cache"])


@pytest.mark.parametrize(("cell", "error"), [("transient([1])", ValueError), ("transient(5)", TypeError)])
def test_what_cannot_be_marked_is_refused(cell: str, error: type[Exception]) -> None:
    one = Notebook("r1")
    with pytest.raises(error, match="transient takes what a variable holds"):
        one.run(f"import replkernel\nreplkernel.{cell}", 1)
