"""Sets are iterated after a rebuild as they were before, however they came to be."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.state.format.set_order import Recipe, follow, recipe_for, recipes_for

SMALL = 10
"""The order of fewer members is kept but for rare cases: sixteen places that all want to be the same ones."""

numbers = st.integers(0, 10**6)
members = st.one_of(numbers, st.floats(allow_nan=False), st.tuples(numbers, numbers), st.binary(max_size=6))


def _rebuilt(value: set[Any]) -> set[Any]:
    rebuilt: set[Any] = pickle.loads(pickle.dumps(value))
    recipe = recipe_for(value, 0)
    if recipe is not None:
        follow(recipe, rebuilt)
    return rebuilt


@given(st.lists(members, max_size=120))
@settings(deadline=None)
def test_a_set_that_grew_keeps_its_order(items: list[Any]) -> None:
    value: set[Any] = set()
    for item in items:
        value.add(item)
    rebuilt = _rebuilt(value)
    assert rebuilt == value
    if len(value) > SMALL:
        assert list(rebuilt) == list(value)


def test_a_set_goes_on_growing_as_it_would() -> None:
    value = {number * 7919 % 100_003 for number in range(70)}
    for number in list(value)[::3]:
        value.discard(number)
    rebuilt = _rebuilt(value)
    for number in range(200):
        value.add(number * 31)
        rebuilt.add(number * 31)
        assert list(rebuilt) == list(value)


@given(st.sets(numbers, max_size=80), st.sets(numbers, max_size=80))
@settings(deadline=None)
def test_the_results_of_operations_keep_their_order(one: set[int], other: set[int]) -> None:
    for value in (one - other, one & other, one ^ other, one.copy()):
        rebuilt = _rebuilt(value)
        assert rebuilt == value
        if len(value) > SMALL:
            assert list(rebuilt) == list(value)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), min_size=1, max_size=200))
@settings(deadline=None)
def test_members_survive_whatever_happened_to_a_set(steps: list[tuple[bool, int]]) -> None:
    value: set[int] = set()
    for add, number in steps:
        (value.add if add else value.discard)(number)
    assert _rebuilt(value) == value


def test_a_set_from_which_much_was_taken_keeps_its_order() -> None:
    value = {number * 7919 % 100_003 for number in range(300)}
    for number in list(value)[:200]:
        value.discard(number)
    assert list(_rebuilt(value)) == list(value)


class _Own:
    """Hashing it is noticed."""

    hashed = 0

    def __hash__(self) -> int:
        _Own.hashed += 1
        return 1


def test_members_of_the_users_own_types_are_not_hashed() -> None:
    value: set[Any] = {_Own(), 1, 2}
    before = _Own.hashed
    assert recipe_for(value, 0) is None
    assert _Own.hashed == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda recipe: Recipe(0, recipe.fillers, recipe.together, recipe.order[:-4]),
        lambda recipe: Recipe(0, recipe.fillers, recipe.together, recipe.order[:4] * 40),
    ],
)
def test_a_recipe_that_does_not_fit_changes_nothing(spoil: Callable[[Recipe], Recipe]) -> None:
    value = set(range(30)) | {number * 7919 for number in range(40)}
    (recipe,) = recipes_for([(0, value), (1, [1])])
    rebuilt = pickle.loads(pickle.dumps(value))
    order = list(rebuilt)
    follow(spoil(recipe), rebuilt)
    assert list(rebuilt) == order


@given(st.lists(members, max_size=60, unique_by=repr), st.integers(0, 8), st.lists(members, max_size=20))
@settings(deadline=None)
def test_a_set_goes_on_being_emptied_where_it_was(items: list[Any], taken: int, more: list[Any]) -> None:
    value = set(items)
    for _ in range(min(taken, len(value))):
        value.pop()
    rebuilt = _rebuilt(value)
    if len(value) > SMALL or (rebuilt == value and list(rebuilt) == list(value)):
        for one in (value, rebuilt):
            one.update(more)
        if list(value) == list(rebuilt):
            assert [rebuilt.pop() for _ in range(len(rebuilt))] == [value.pop() for _ in range(len(value))]


def test_a_list_of_work_is_done_in_its_order() -> None:
    value = set(range(8))
    first = [value.pop() for _ in range(4)]
    rebuilt = _rebuilt(value)
    for one in (value, rebuilt):
        one.update(first)
    done = [value.pop() for _ in range(8)]
    assert done[:4] == [4, 5, 6, 7]
    assert [rebuilt.pop() for _ in range(8)] == done
