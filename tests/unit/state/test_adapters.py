"""Iterators over iterators of the notebook arrive without asking these for an iterator once more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.notebook import moved

FROM_THE_START = (
    "from itertools import *\n"
    "class Steps:\n"
    "  def __init__(s, n): s.n, s.i = n, 0\n"
    "  def __iter__(s): s.i = 0; asked.append(s.n); return s\n"
    "  def __next__(s):\n"
    "    if s.i == s.n: raise StopIteration\n"
    "    s.i += 1\n"
    "    return s.i\n"
    "asked = []; a, b = Steps(9), Steps(8)\n"
)


@pytest.mark.parametrize(
    ("made", "rest"),
    [
        ("enumerate(a, 5)", [(7, 3), (8, 4)]),
        ("zip(a, b, strict=True)", [(3, 3), (4, 4)]),
        ("zip(a, 'abcde')", [(3, "c"), (4, "d")]),
        ("map(lambda x, y: x * y, a, b)", [9, 16]),
        ("filter(lambda x: x % 2, a)", [5, 7]),
        ("filterfalse(lambda x: x % 2, a)", [6, 8]),
        ("accumulate(a)", [6, 10]),
        ("compress(a, [1, 1, 0, 1, 1])", [4, 5]),
        ("cycle(a)", [3, 4]),
        ("dropwhile(lambda x: x < 3, a)", [5, 6]),
        ("takewhile(lambda x: x < 9, a)", [3, 4]),
        ("islice(a, 1, 8, 2)", [6, 8]),
        ("starmap(pow, zip(a, b))", [27, 256]),
        ("chain(a, b)", [3, 4]),
        ("chain.from_iterable(repeat(a))", [3, 4]),
        ("zip_longest([], a)", [(None, 3), (None, 4)]),
        ("enumerate(map(abs, a))", [(2, 3), (3, 4)]),
        ("tee(a)[0]", [3, 4]),
        ("pairwise(a)", [(3, 4), (4, 5)]),
    ],
)
def test_an_adapter_over_an_iterator_of_the_notebooks_goes_on(made: str, rest: list[Any]) -> None:
    space = moved(f"{FROM_THE_START}it = {made}; next(it); next(it); asked.clear()", "again = 1", "more = 2")
    assert space["asked"] == []
    assert [next(space["it"]), next(space["it"])] == rest


def test_a_group_goes_on_over_an_iterator_of_the_notebooks() -> None:
    space = moved(
        f"{FROM_THE_START}it = groupby(a, lambda x: x // 4); key, group = next(it); first = next(group)\n"
        "asked.clear()",
        "second = next(group)",
        "again = 1",
    )
    assert space["asked"] == []
    assert (space["first"], space["second"], list(space["group"])) == (1, 2, [3])
    assert [(key, list(group)) for key, group in space["it"]] == [(1, [4, 5, 6, 7]), (2, [8, 9])]
