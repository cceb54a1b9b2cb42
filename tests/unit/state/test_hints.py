"""What users say of variables beforehand: a transient one stays where it is, and binds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from replkernel.errors import StateLostError
from replkernel.state import hints
from replkernel.state.capture.budget import Terms
from replkernel.state.hints import HintsPart
from replkernel.state.process.plain import encode_plain
from tests.support.notebook import Notebook, pair

MARK = "import replkernel\ncache = {'big': bytearray(1_000_000)}\nreplkernel.transient(cache)\nx = 1"


@pytest.fixture(autouse=True)
def nothing_marked() -> Iterator[None]:
    yield
    hints.transient.clear()
    hints.kept.clear()


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


def test_a_variable_that_shares_with_a_transient_one_keeps_its_own() -> None:
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
def test_a_value_that_cannot_be_marked_transient_is_refused(cell: str, error: type[Exception]) -> None:
    one = Notebook("r1")
    with pytest.raises(error, match="transient takes what a variable holds"):
        one.run(f"import replkernel\nreplkernel.{cell}", 1)


# -- what is kept only every so often --------------------------------------------------------------

TRAINED = "import replkernel\nmodel, log = bytearray(1_000_000), []\nreplkernel.keep(model, every='5 min')"
STEP = "model[0] += 1\nlog.append(len(log))"
KEPT = Terms(kept=frozenset({"model"}))


def test_a_kept_variable_stays_as_it_was_told_until_its_time() -> None:
    one, two = pair()
    two.take(one.run(TRAINED, 1))
    early = one.run(STEP, 2, KEPT)
    assert [left.name for left in early.unaudited] == ["model"]
    assert (early.unaudited[0].cell, one.state.kept_back) == (1, {"model"})
    assert sum(component.state_bytes for component in early.components) < 10_000
    late = one.run(STEP, 3)
    assert late.whole and not one.state.kept_back
    two.take(early)
    two.take(late)
    assert (two["model"][0], two["log"]) == (2, [0, 1])


def test_an_unchanged_kept_variable_holds_nothing_back() -> None:
    one, _ = pair()
    one.run(TRAINED, 1)
    assert one.run("log.append(1)", 2, KEPT).whole


def test_a_variable_joined_with_a_kept_one_waits_with_it() -> None:
    one, two = pair()
    two.take(one.run(TRAINED + "\nopt = {'of': model}", 1))
    early = one.run("opt['step'] = 1", 2, KEPT)
    assert {left.name for left in early.unaudited} == {"model", "opt"}
    assert one.run("opt['step'] = 2", 3, KEPT).components == ()
    two.take(one.run("x = 1", 4))
    assert two["opt"]["step"] == 2
    assert two["opt"]["of"] is two["model"]


def test_the_first_version_of_what_is_kept_is_told_at_once() -> None:
    one, two = pair()
    two.take(one.run(TRAINED, 1, KEPT))
    assert len(two["model"]) == 1_000_000


def test_a_deleted_variable_is_kept_no_more() -> None:
    one, _ = pair()
    one.run(TRAINED, 1)
    one.run(STEP, 2, KEPT)
    assert one.run("del model", 3, KEPT).whole
    assert not one.state.kept_back


def test_a_kept_variable_is_listed_everywhere_until_that_is_withdrawn() -> None:
    one, two = pair()
    two.take(
        one.run(TRAINED + "\nreplkernel.keep('log', every=90)\ncache = {}\nreplkernel.transient(cache)", 1)
    )
    two.run("import replkernel; kept, marked = replkernel.keep(), replkernel.transient()", 2)
    assert two["kept"] == {"model": "5 min", "log": "90 s"}
    assert two["marked"] == ["cache"]
    two.run("replkernel.keep(log, 'model', every=None); kept = replkernel.keep()", 3)
    assert two["kept"] == {}


def test_hints_of_a_release_that_knew_transient_ones_alone_are_read() -> None:
    HintsPart().load(encode_plain(["cache"]))
    assert (hints.transient, hints.kept) == ({"cache": None}, {})


@pytest.mark.parametrize(
    ("every", "seconds"),
    [(30, 30.0), (2.5, 2.5), ("30", 30.0), ("30 s", 30.0), ("5min", 300.0), (" 1.5 h ", 5400.0)],
)
def test_times_are_read(every: float | str, seconds: float) -> None:
    assert hints.every_s(every) == seconds
    assert hints.every_s(hints.every_in_words(seconds)) == seconds


@pytest.mark.parametrize(
    "every", ["", "5 minutes", "-5 s", "0", "25 h", 0.5, float("nan"), float("inf"), "9" * 100]
)
def test_other_times_are_refused(every: float | str) -> None:
    with pytest.raises(ValueError, match="every="):
        hints.every_s(every)


@pytest.mark.parametrize("every", [True, [5], b"5 s"])
def test_a_text_that_is_no_time_is_refused(every: Any) -> None:
    with pytest.raises(TypeError, match="every takes seconds"):
        hints.every_s(every)


@pytest.mark.parametrize(
    ("cell", "error", "says"),
    [
        ("keep(model)", ValueError, "needs to know how often"),
        ("keep(model, every='soon')", ValueError, "write seconds"),
        ("keep('modle')", ValueError, "none that is called 'modle'"),
        ("keep(3.5)", TypeError, "no plain number"),
        ("keep('modle', every=5)", ValueError, "none that is called 'modle'"),
        ("keep([1], every=5)", ValueError, "keep takes what a variable holds"),
        ("keep(5, every=5)", TypeError, "no plain number"),
    ],
)
def test_a_value_that_cannot_be_kept_is_refused_and_changes_nothing(
    cell: str, error: type[Exception], says: str
) -> None:
    one = Notebook("r1")
    with pytest.raises(error, match=says):
        one.run(f"import replkernel\nmodel = [1]\nreplkernel.{cell}", 1)
    assert not hints.kept
