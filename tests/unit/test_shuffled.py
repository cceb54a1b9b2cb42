"""The other orders in which modules of tests are played."""

from __future__ import annotations

import pytest

from tests.support.shuffled import another

MODULES = [f"test_{number}" for number in range(20)]


def test_an_order_is_the_reversed_one_or_a_numbers_own() -> None:
    assert another("reversed", MODULES) == MODULES[::-1]
    assert another("7", MODULES) == another("7", MODULES) != MODULES
    assert another("8", MODULES) != another("7", MODULES)
    assert sorted(another("7", MODULES)) == sorted(MODULES)


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(ValueError, match="any"):
        another("any", MODULES)
