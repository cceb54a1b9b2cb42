"""Modules do not import each other in a circle, not for annotations either; the state's still do."""

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


def test_no_modules_but_some_of_the_states_import_each_other_in_a_circle() -> None:
    found = [module for cycle in cycles(imports()) for module in cycle]
    assert [module for module in found if not module.startswith("replkernel.state.")] == []
    assert len(found) <= 20
