"""Frozensets are iterated on another replica as they were on the first, however they came to be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.state.format import frozen_order
from tests.support.notebook import Notebook, pair

numbers = st.integers(0, 10**6)
members = st.one_of(
    numbers, st.text(max_size=4), st.tuples(numbers, st.text(max_size=3)), st.frozensets(numbers)
)


@given(st.lists(members, max_size=60), st.lists(members, max_size=60))
@settings(deadline=None)
def test_a_way_that_is_told_gives_the_order_and_is_told_again(items: list[Any], more: list[Any]) -> None:
    for value in (frozenset(items), frozenset(set(items) | set(more)), frozenset(set(items) - set(more))):
        way = frozen_order.way_of(value)
        if way is None:
            continue
        made = frozen_order.made(*way)
        assert made == value
        assert list(made) == list(value)
        assert frozen_order.way_of(made) == way


def test_nothing_is_told_of_members_whose_hash_is_another_in_each_process() -> None:
    objects = [object() for _ in range(40)]
    assert frozen_order.way_of(frozenset(set(objects) | {1})) is None


_GROWN = """
words = [f"word{n * 7919 % 101}" for n in range(60)]; s = set(words); s -= set(words[::3])
stop = frozenset(s); held = [stop, {"key": stop}]; parts = frozenset([frozenset(words[:9]), stop])
"""


@pytest.mark.parametrize(
    "then", ["", "alias = stop", "other = {'it': stop}; del stop", "words.append(stop)", "stop |= {'more'}"]
)
def test_a_frozenset_keeps_its_order_and_who_shares_it(then: str) -> None:
    executor, standby = pair()
    for number, cell in enumerate((_GROWN, then, "x = 1"), 1):
        assert standby.take(executor.run(cell, number)).failed == ()
    asked = (
        "[list(v) for v in (held[0], held[1]['key'], *parts)], held[0] is held[1]['key'], held[0] in parts"
    )
    for expression in (
        asked,
        "list(stop) if 'stop' in globals() else list(other['it'])",
        "'alias' in globals() and alias is stop",
        "words[-1] is held[0]",
    ):
        assert _value(standby, expression) == _value(executor, expression)


def test_two_processes_that_built_a_frozenset_in_turn_tell_the_same() -> None:
    executor, standby = pair()
    standby.take(executor.run(_GROWN, 1))
    assert executor.take(standby.run("stop = stop | {'a', 'b', 'c'}", 2)).failed == ()
    assert list(executor["stop"]) == list(standby["stop"])


def _value(notebook: Notebook, expression: str) -> Any:
    notebook.run(f"told = {expression}", 50)
    return notebook["told"]
