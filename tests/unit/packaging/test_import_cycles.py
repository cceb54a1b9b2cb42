"""Modules do not import each other in a circle, not for annotations either."""

from __future__ import annotations

from tests.bench.import_cycles import cycles, imports


def test_a_cycle_is_told_with_all_its_modules_and_nothing_else() -> None:
    graph = {
        "a": {"b"},
        "b": {"c"},
        "c": {"b", "d"},
        "d": {"e"},
        "e": {"f"},
        "f": {"e", "g"},
        "g": set[str](),
    }
    assert cycles(graph) == [["b", "c"], ["e", "f"]]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycles(imports()) == []
