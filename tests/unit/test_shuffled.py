"""The other orders in which tests are played."""

from __future__ import annotations

import pytest

from tests.support.shuffled import another

TESTS = [(module, test) for module in range(20) for test in range(3)]


def played(order: str) -> list[tuple[int, int]]:
    return another(order, TESTS, lambda test: test[0])


def test_reversed_begins_with_the_last_test_of_the_last_module() -> None:
    assert played("reversed") == TESTS[::-1]


def test_a_number_gives_modules_an_order_of_its_own_in_which_each_keeps_its_tests_order() -> None:
    assert played("7") == played("7") != TESTS
    assert played("8") != played("7")
    assert sorted(played("7")) == TESTS
    assert [test for _, test in played("7")] == [0, 1, 2] * 20


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(ValueError, match="any"):
        played("any")
