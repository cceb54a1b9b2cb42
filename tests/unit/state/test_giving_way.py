"""A capture that gives way, at whatever point: what it ships is true, what it leaves out it names, and once
everything has been looked at the replica is as the original."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.records import Delta, Fence, Seq
from replkernel.state.capture import survey, survey_order
from replkernel.state.capture.budget import EVERYTHING, Terms
from tests.support.examples import examples
from tests.support.notebook import Notebook, changed, pair

ITEMS = 11_000
SETUP = f"""
big = [[i] for i in range({ITEMS})]
other = {{i: [i] for i in range({ITEMS})}}
small = [1]
twin = [small, 0]
text = 'ab' * 700_000
class Point:
    def __init__(self, x): self.x = x
points = [Point(i) for i in range(3)]
number = 1
"""
CELLS = (
    "number += 1",
    "small.append(number)",
    "big[7].append(number)",
    "other[9] = [number]",
    "y = big[3]; y.append(1)",
    "z = other[4]",
    "other[5] = big[5]",
    "big = big[:-1]",
    "big = [[i] for i in range(11_500)]",
    "points.append(Point(big[11]))",
    "class Line:\n    def __init__(self, a): self.a = a",
    "lines = [Line(small)] if 'Line' in globals() else [0]",
    "text = text + 'c'",
    "globals().pop('y', None); globals().pop('twin', None)",
    "del other; other = {1: [1], 4: [2], 5: [3], 9: [4]}",
    "Point.shared = big[12]",
    "fresh = {i: str(i) for i in range(21_000)}",
)
"""Each leaves `big` and `other` with the keys that the others use."""


class StopAfter:
    """Somebody who waits from the n-th question on."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def capture(book: Notebook, seq: int, terms: Terms) -> Delta:
    delta = book.state.capture(Seq(seq), Fence(seq), seq, terms)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(delta), type=Delta)


def variables(book: Notebook) -> dict[str, Any]:
    return {
        name: value
        for name, value in book.namespace.items()
        if not name.startswith("__") and not isinstance(value, type)
    }


def plain(value: Any) -> Any:
    """Return a value as what can be compared between two notebooks."""
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return (type(value).__name__, {name: plain(kept) for name, kept in vars(value).items()})
    if isinstance(value, list) and value and hasattr(value[0], "__dict__"):
        return [plain(item) for item in value]
    return value


def links(book: Notebook) -> set[tuple[str, str]]:
    """Return which variables hold the same list, directly or inside."""
    holders: dict[int, set[str]] = {}
    for name, value in variables(book).items():
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for item in (
            value,
            *inside,
            *(getattr(item, "a", None) for item in inside),
            *(getattr(item, "x", None) for item in inside),
        ):
            if isinstance(item, list):
                holders.setdefault(id(item), set()).add(name)
    return {(one, two) for names in holders.values() for one in names for two in names if one < two}


def assert_same(one: Notebook, two: Notebook) -> None:
    mine, theirs = variables(one), variables(two)
    assert list(mine) == list(theirs)
    for name in mine:
        assert plain(mine[name]) == plain(theirs[name]), name
    assert links(one) == links(two)


def assert_true_but_for(one: Notebook, two: Notebook, delta: Delta) -> None:
    """Assert that whatever is not named as unaudited is as in the original."""
    unaudited = {left.name for left in delta.unaudited}
    mine, theirs = variables(one), variables(two)
    for name in mine.keys() - unaudited:
        assert plain(mine[name]) == plain(theirs[name]), name
    assert theirs.keys() - mine.keys() <= unaudited


@given(
    cells=st.lists(st.tuples(st.sampled_from(CELLS), st.integers(0, 60)), min_size=1, max_size=5),
    budget_s=st.sampled_from([None, 0.0, 0.05]),
    heavy_s=st.sampled_from([0.0, 0.002, 10.0]),
    first=st.sampled_from([frozenset(), frozenset({"big"}), frozenset({"number", "other"})]),
    sparing=st.booleans(),
    kept=st.frozensets(
        st.sampled_from(["big", "other", "small", "twin", "points", "lines", "text", "number"])
    ),
)
@settings(max_examples=examples(15), deadline=None)
def test_wherever_captures_give_way_the_replica_ends_as_the_original(
    cells: list[tuple[str, int]],
    budget_s: float | None,
    heavy_s: float,
    first: frozenset[str],
    sparing: bool,
    kept: frozenset[str],
) -> None:
    before, survey_order.HEAVY_S = survey_order.HEAVY_S, heavy_s
    try:
        one, two = pair()
        two.take(one.run(SETUP, 1))
        for seq, (source, questions) in enumerate(cells, 2):
            exec(source, one.namespace)
            terms = Terms(first, StopAfter(questions), 0.0, budget_s, 0, 0.0, sparing=sparing, kept=kept)
            delta = capture(one, seq, terms)
            two.take(delta)
            assert_true_but_for(one, two, delta)
        last = capture(one, len(cells) + 1, EVERYTHING._replace(audit=1))
        assert last.unaudited == ()
        two.take(last)
        assert_same(one, two)
        quiet = capture(one, len(cells) + 2, EVERYTHING)
        assert (quiet.components, quiet.dropped) == ((), ())
        assert two.capture(len(cells) + 2).components == ()
    finally:
        survey_order.HEAVY_S = before


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all for heavy that takes more than a moment."""
    monkeypatch.setattr(survey_order, "HEAVY_S", 0.0002)


def stopped_at_big(one: Notebook, seq: int) -> Delta:
    """Capture all but what takes long and the cell does not mention."""
    return capture(one, seq, Terms(frozenset({"x"}), None, 0.0, 0.0))


@pytest.mark.usefixtures("impatient")
def test_a_variable_left_out_is_named_with_the_cell_after_which_it_was_checked() -> None:
    one, two = pair()
    one.run(f"big = [[i] for i in range({ITEMS})]", 1)
    one.run("x = 1", 2)
    exec("x = 2; big[0].append(1)", one.namespace)
    delta = stopped_at_big(one, 3)
    assert changed(delta) == ["x"]
    assert [(left.name, left.cell, left.replica) for left in delta.unaudited] == [("big", 2, "r1")]
    exec("x = 3", one.namespace)
    assert [left.cell for left in stopped_at_big(one, 4).unaudited] == [2]
    audit = capture(one, 4, EVERYTHING._replace(audit=1))
    assert (changed(audit), audit.unaudited, audit.mark) == (["big"], (), (4, 1))
    assert one.state.mark == (4, 1)
    assert two.state.mark == (0, 0)


def test_a_sparing_capture_leaves_out_what_is_large_and_known_though_the_cell_mentions_it() -> None:
    one, two = pair()
    two.take(one.run("import numpy as np; data = np.zeros(8 << 20, 'u1'); small = 1", 1))
    exec("data += 1; small = 2; new = np.zeros(8 << 20, 'u1')", one.namespace)
    sparing = Terms(frozenset({"data", "small"}), None, 0.0, 0.05, sparing=True)
    delta = capture(one, 2, sparing)
    assert [(left.name, left.cell, left.held) for left in delta.unaudited] == [("data", 1, False)]
    two.take(delta)
    assert (two.namespace["small"], two.namespace["data"][0], len(two.namespace["new"])) == (2, 0, 8 << 20)
    exec("data[5] = 9", one.namespace)
    few = capture(one, 3, sparing)
    assert [left.name for left in few.unaudited] == ["data"]
    two.take(few)
    two.take(capture(one, 3, EVERYTHING._replace(audit=1)))
    assert (two.namespace["data"] == one.namespace["data"]).all()
    exec("data[7] = 9", one.namespace)
    assert capture(one, 4, sparing).unaudited == (), "little of it has changed"


def test_a_new_variable_whose_first_dump_gives_way_was_never_captured() -> None:
    one, two = pair()
    exec(f"big = [[i] for i in range({ITEMS})]\nx = 1", one.namespace)
    delta = capture(one, 1, Terms(stop=StopAfter(2), every_s=0.0))
    assert changed(delta) == ["x"]
    left_out = [(left.name, left.cell) for left in delta.unaudited]
    assert [one for one in left_out if not one[0].startswith("library ")] == [("big", 0)]
    two.take(delta)
    assert "big" not in two
    two.take(capture(one, 1, EVERYTHING._replace(audit=1)))
    assert_same(one, two)


def test_a_class_that_is_defined_anew_is_kept_for_instances_that_are_told_later() -> None:
    one, two = pair()
    two.take(one.run("class Line: pass", 1))
    exec(f"lines = [Line(), *([i] for i in range({5 * ITEMS}))]", one.namespace)
    delta = capture(one, 2, Terms(stop=StopAfter(1), every_s=0.0))
    assert "lines" in {left.name for left in delta.unaudited}
    two.take(delta)
    exec("class Line: pass", one.namespace)
    delta = capture(one, 3, Terms(frozenset({"Line"}), StopAfter(1), 0.0))
    assert changed(delta) == ["Line"]
    two.take(delta)
    gc.collect()
    two.take(capture(one, 3, EVERYTHING._replace(audit=1)))
    assert type(two["lines"][0]).__name__ == "Line"
    assert not isinstance(two["lines"][0], two["Line"])


@pytest.mark.usefixtures("impatient")
def test_a_variable_that_shares_with_an_unaudited_one_is_joined_by_the_audit() -> None:
    one, two = pair()
    two.take(one.run(f"big = [[i] for i in range({ITEMS})]\nx = 0", 1))
    exec("y = big[0]; y.append(7); x = 1", one.namespace)
    delta = stopped_at_big(one, 2)
    assert changed(delta) == ["x", "y"]
    two.take(delta)
    assert two["y"] == [0, 7]
    two.take(capture(one, 2, EVERYTHING._replace(audit=1)))
    assert two["y"] is two["big"][0]
    assert two["y"] == [0, 7]
    assert two.capture(3).components == ()


@pytest.mark.usefixtures("impatient")
def test_a_late_delta_of_the_same_execution_is_taken_and_an_old_one_is_not() -> None:
    one, two = pair()
    first = one.run(f"big = [[i] for i in range({ITEMS})]\nx = 0", 1)
    exec("x = 1; big[0] = [5]", one.namespace)
    partial = stopped_at_big(one, 2)
    audit = capture(one, 2, EVERYTHING._replace(audit=1))
    two.take(first, partial, audit)
    assert two["big"][0] == [5]
    two.take(partial)
    assert two.state.mark == (2, 1)
    assert two.state.inherited == ((), 2)


@pytest.mark.usefixtures("impatient")
def test_a_deleted_variable_is_dropped_without_being_looked_at() -> None:
    one, two = pair()
    two.take(one.run(f"big = [[i] for i in range({ITEMS})]\nx = 0", 1))
    exec("del big; x = 1", one.namespace)
    delta = stopped_at_big(one, 2)
    assert delta.unaudited == ()
    two.take(delta)
    assert "big" not in two


@pytest.mark.usefixtures("impatient")
def test_a_heavy_variable_that_looks_different_is_not_left_out() -> None:
    one, _ = pair()
    one.run(f"big = [[i] for i in range({ITEMS})]\nx = 0", 1)
    exec("big.append([1])", one.namespace)
    assert "big" in changed(stopped_at_big(one, 2))


def test_captures_that_nobody_interrupts_ask_nobody() -> None:
    def never() -> bool:
        raise AssertionError("asked within its grace")

    stop: Callable[[], bool] = never
    one, _ = pair()
    exec(SETUP, one.namespace)
    assert capture(one, 1, Terms(stop=stop, grace_s=60.0)).unaudited == ()


def test_no_fault_of_user_code_is_taken_for_giving_way_nor_hides_it() -> None:
    one, _ = pair()
    exec(
        f"""
class Odd:
    def __replkernel_dump__(self):
        try:
            return [[i] for i in range({ITEMS})]
        except Exception:
            return []
    @classmethod
    def __replkernel_load__(cls, items): return cls()
odd = [Odd() for _ in range(3)]
x = 1""",
        one.namespace,
    )
    delta = capture(one, 1, Terms(stop=StopAfter(3), every_s=0.0))
    assert [left.name for left in delta.unaudited if ":" not in left.name] == ["odd"]
    assert not any(component.pins for component in delta.components)


def test_captures_of_a_large_graph_give_their_memory_back() -> None:
    one, _ = pair()
    exec("big = [[i] for i in range(100_000)]", one.namespace)
    capture(one, 1, EVERYTHING)
    tracemalloc.start()
    try:
        for seq in range(2, 5):
            exec("big[0].append(1)", one.namespace)
            capture(one, seq, Terms(stop=StopAfter(1), every_s=0.0) if seq == 3 else EVERYTHING)
        one.cache.chunks.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000


@pytest.mark.parametrize("size", [1, 1 << 40])
@pytest.mark.parametrize("questions", range(0, 40, 3))
def test_large_buffers_of_several_variables_are_told_or_named_wherever_the_capture_stops(
    questions: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_order, "TOGETHER_BYTES", size)
    one, two = pair()
    two.take(one.run("a, b, c = (bytearray(9_000_000) for _ in 'abc')\nd = [b, 0]\nx = 0", 1))
    exec("a[5] = c[-1] = x = 1", one.namespace)
    delta = capture(one, 2, Terms(stop=StopAfter(questions), every_s=0.0))
    two.take(delta)
    assert_true_but_for(one, two, delta)
    assert {"a", "c"} <= set(changed(delta)) | {left.name for left in delta.unaudited}
    one.namespace["a"].append(1)  # Nothing keeps the buffer.
    two.take(capture(one, 2, EVERYTHING._replace(audit=1)))
    assert_same(one, two)


def test_a_large_buffer_that_changed_is_asked_for_what_it_shares_now() -> None:
    one, two = pair()
    two.take(one.run("a = bytearray(9_000_000)\nb = bytearray(9_000_000)", 1))
    two.take(one.run("a[0] = 1; c = a; b = [b]", 2))
    assert two.namespace["c"] is two.namespace["a"]
    assert_same(one, two)


def test_a_buffer_that_fails_to_be_hashed_with_others_is_dumped_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("The device does not answer.")

    one, two = pair()
    two.take(one.run("a = bytearray(9_000_000)\nb = bytearray(9_000_000)", 1))
    monkeypatch.setattr(survey, "hash_buffers", fail)
    two.take(one.run("a[0] = 1", 2))
    assert_same(one, two)
