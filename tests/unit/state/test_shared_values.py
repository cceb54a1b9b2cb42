"""Immutable values that several components hold stay one object, and nothing else becomes one."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from replkernel.state.format.shared_values import is_interned, tells
from tests.support.notebook import Notebook, pair


def _moved(*cells: str) -> tuple[Notebook, dict[str, Any]]:
    one, two = pair()
    for seq, cell in enumerate(cells, 1):
        two.take(one.run(cell, seq))
    return two, two.namespace


def test_a_text_with_a_name_in_two_lists_stays_one() -> None:
    _, there = _moved("mark = 'x y' * 50; a = [mark, 1]; b = [a[0]]", "del mark")
    assert there["a"][0] is there["b"][0]


def test_equal_texts_that_are_two_stay_two() -> None:
    _, there = _moved("m = 'x y' * 50; n = ''.join(['x y'] * 50); a = [m]; b = [n]; c = [b[0]]; d = [a[0]]")
    assert there["a"][0] == there["b"][0]
    assert there["a"][0] is not there["b"][0]
    assert there["b"][0] is there["c"][0]
    assert there["a"][0] is there["d"][0]


def test_a_variable_that_was_told_alone_is_told_again_when_a_list_takes_its_text() -> None:
    _, there = _moved("a = 'some text'", "n = 1", "b = [a]", "c = {'k': b[0]}")
    assert there["a"] is there["b"][0] is there["c"]["k"]


def test_the_only_list_of_a_notebook_takes_a_text_that_was_told_before() -> None:
    _, there = _moved("a = 'some text'", "b = [a]")
    assert there["a"] is there["b"][0]


def test_a_literal_is_the_literal_of_later_cells() -> None:
    _, there = _moved("IDLE = 'idle'; job = {'state': IDLE}")
    assert there["job"]["state"] is there["IDLE"] is sys.intern("idle")


def test_tuples_keep_what_they_share_with_others() -> None:
    _, there = _moved("text = 'some text'; key = (text, 1, (2.5, None)); table = {key: text}")
    assert next(iter(there["table"])) is there["key"]
    assert there["key"][0] is there["text"] is there["table"][there["key"]]
    assert there["key"] == ("some text", 1, (2.5, None))


@pytest.mark.parametrize(
    "made",
    [
        "tuple(range(200))",
        "(float('nan'), 1)",
        "tuple([i] for i in range(20_000))",
        "__import__('functools').reduce(lambda tail, i: (i, tail), range(300), ())",
        "__import__('functools').reduce(lambda tail, i: (i, tail), range(12_000), ())",
    ],
    ids=["long", "with a NaN", "large", "deep", "large and deep"],
)
def test_a_tuple_that_has_no_name_stays_one(made: str) -> None:
    _, there = _moved(f"t = {made}; a = [t, t]; d = {{'t': t}}", "later = ('more', t)", "a.append(later)")
    assert all(held is there["t"] for held in (*there["a"][:2], there["d"]["t"], there["later"][1]))
    assert there["a"][2] is there["later"]


def test_one_of_the_rows_of_a_long_list_does_not_have_it_told_again() -> None:
    one, two = pair()
    two.take(one.run("rows = [(i, str(i)) for i in range(20_000)]", 1))
    size = sum(one.cache.written)
    two.take(one.run("row = rows[5]", 2))
    two.take(one.run("row = rows[6]", 3))
    assert sum(one.cache.written) < size + 10_000


def test_shared_values_stay_one_object_in_both_directions() -> None:
    one, two = pair()
    two.take(one.run("mark = 'the mark'; rows = [[mark]]", 1))
    one.take(two.run("rows.append([mark]); more = [rows[0][0]]", 2))
    assert one.namespace["mark"] is one.namespace["rows"][0][0] is one.namespace["more"][0]
    two.take(one.run("mark = 'another mark'", 3))
    there = two.namespace
    assert there["rows"][1][0] is there["more"][0]
    assert there["mark"] is not there["more"][0]


def test_nothing_is_shipped_again_that_did_not_change() -> None:
    one, two = pair()
    two.take(one.run("mark = 'the mark'; rows = [[mark]]; table = {(mark, 2): mark}", 1))
    assert one.capture(2).components == ()
    assert two.capture(3).components == ()


def test_large_text_is_whole_when_it_is_beside_a_shared_one() -> None:
    _, there = _moved("mark = 'the mark'; big = 'ä' * 100_000; rows = [mark, big, mark]; b = [mark]")
    assert there["rows"] == ["the mark", "ä" * 100_000, "the mark"]
    assert there["rows"][0] is there["rows"][2] is there["b"][0]


@pytest.mark.parametrize(
    "value", ["é", "a\ud800b", "x" * 300, b"y" * 300, b"\x00\xff", ("a b", (), (True, None))]
)
def test_a_value_comes_as_it_was(value: Any) -> None:
    one, two = pair()
    one.namespace.update(a=value, b=[value], c={"k": value})
    two.take(one.capture(1))
    there = two.namespace
    assert (there["a"], there["b"], there["c"]) == (value, [value], {"k": value})
    assert there["b"][0] is there["c"]["k"]


DATES = (
    "from datetime import *; from decimal import Decimal; from fractions import Fraction\n"
    "from pathlib import *; import uuid\n"
)


@pytest.mark.parametrize(
    "value",
    [
        "date(2024, 1, 2)",
        "datetime(2024, 1, 2, 3, fold=1, tzinfo=timezone(timedelta(hours=1), 'x y'))",
        "time(3, 4)",
        "timedelta(3)",
        "Decimal('1.10')",
        "Fraction(1, 3)",
        "Path('a b') / 'c'",
        "uuid.UUID(int=5)",
        "1 + 2j",
        "range(7)",
        "frozenset()",
        "frozenset({'x y', 2, (date(2024, 1, 2), None)})",
        "(date(2024, 1, 2), Path('.'))",
    ],
)
def test_a_plain_value_with_a_name_in_two_containers_stays_one(value: str) -> None:
    one, two = pair()
    two.take(one.run(f"{DATES}mark = {value}; twin = mark; a = [mark]; b = {{1: mark}}", 1))
    one.take(two.run(f"other = {value}\nclass Job: at = mark\njobs = [Job(), a]; a.append(other)", 2))
    for names in (one.namespace, two.namespace):
        mark, other = names["mark"], names["other"]
        assert mark is names["twin"] is names["a"][0] is names["b"][1] is names["Job"].at
        assert other == mark and type(other) is type(mark)
        assert names["a"][1] is other and (other is not mark or value == "frozenset()")
    assert one.capture(3).components == ()


def test_rows_that_a_list_and_a_sorted_copy_hold_stay_the_same_rows() -> None:
    one, two = pair()
    two.take(one.run("rows = [('b', 2), ('a', 1), ('a', 1.5)]; best = sorted(rows)", 1))
    two.take(one.run("index = {row: row for row in rows}; rows.append(('c', 3))", 2))
    there = two.namespace
    assert [row is there["index"][row] for row in there["rows"][:3]] == [True] * 3
    assert there["best"][0] is there["rows"][1] and next(iter(there["index"])) is there["rows"][0]
    assert one.capture(3).components == two.capture(4).components == ()


def test_of_very_many_such_rows_none_gets_a_name() -> None:
    one, two = pair()
    two.take(one.run("rows = [(n, 'x') for n in range(2000)]; again = list(rows)", 1))
    assert two.namespace["rows"] == two.namespace["again"] and not one.capture(2).components


def test_a_date_is_told_where_the_notebook_has_its_own_type_in_that_place() -> None:
    _, there = _moved(
        DATES + "import datetime as d\nmark = d.date(2024, 1, 2); a = [mark]; b = [mark]\n"
        "class Fake(d.date): pass\nd.date = Fake",
        "import datetime as d\nd.date = Fake.__base__",
    )
    assert type(there["mark"]).__name__ == "date" and there["a"] == there["b"] == [there["mark"]]


def test_values_worth_a_name_are_told_from_others() -> None:
    assert tells("ab")
    assert tells((1, 2))
    assert not any(map(tells, ["", "a", (), ([],), (float("nan"),), 5, None, "x" * 65536]))


def test_interned_text_is_known() -> None:
    text = " ".join(sys.argv[:1] * 2)
    assert not is_interned(text)
    assert is_interned(sys.intern(text))
