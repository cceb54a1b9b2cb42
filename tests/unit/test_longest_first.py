"""Where several processes run the tests, modules that take long begin first."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.longest_first import expected_s, longest_first, put_in_order


def test_a_module_is_as_long_as_its_tests_together() -> None:
    modules = {"many": [0.1] * 30, "one": [50.0], "few": [8.0] * 3, "none": []}
    assert longest_first(modules) == ["one", "few", "many", "none"]


def test_modules_of_equal_length_keep_their_order() -> None:
    assert longest_first({"b": [1.0], "a": [1.0], "c": [1.0]}) == ["b", "a", "c"]


def test_a_test_with_a_long_timeout_of_its_own_takes_longer_than_its_neighbours() -> None:
    assert expected_s("e2e", 300) > expected_s("e2e", None) > expected_s("integration", None)
    assert expected_s("e2e", 10) == expected_s("e2e", None)
    assert expected_s("integration", None) > expected_s("unit", None) > 0


class Collected(NamedTuple):
    """What the order needs of a collected test."""

    nodeid: str
    timeout_s: float | None = None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        assert name == "timeout"
        return None if self.timeout_s is None else pytest.mark.timeout(self.timeout_s).mark


def test_a_modules_own_tests_keep_their_order() -> None:
    items = [
        Collected("tests/unit/agent/test_a.py::test_b"),
        Collected("tests/unit/agent/test_a.py::test_a[x::y]"),
        Collected("tests/e2e/test_hub.py::test_one", timeout_s=300.0),
        Collected("tests/e2e/test_b.py::test_two"),
        Collected("tests/e2e/test_b.py::test_one"),
    ]
    put_in_order(items)
    assert [item.nodeid.rpartition("/")[2] for item in items] == [
        "test_hub.py::test_one",
        "test_b.py::test_two",
        "test_b.py::test_one",
        "test_a.py::test_b",
        "test_a.py::test_a[x::y]",
    ]
