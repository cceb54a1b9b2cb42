"""The search for an order decides right: histories that have one, and histories that must fail."""

from __future__ import annotations

import random

import pytest

from tests.e2e.faults.history import Operation, Outcome
from tests.e2e.faults.linearizable import linearize
from tests.support.breadth import each_nth


def cell(
    name: str,
    began: float,
    ended: float,
    *seen: str,
    outcome: Outcome = "done",
    durable: bool = True,
    blind: bool = False,
) -> Operation:
    return Operation(
        name, "append", "a", began, ended, outcome, None if blind or outcome != "done" else seen, durable
    )


def read(began: float, ended: float, *seen: str) -> Operation:
    return Operation(f"read{began}", "read", "b", began, ended, "done", seen)


def test_cells_one_after_the_other_are_in_order() -> None:
    assert linearize([cell("a1", 0, 1, "a1"), cell("a2", 2, 3, "a1", "a2"), read(4, 5, "a1", "a2")])


def test_concurrent_cells_may_be_in_either_order() -> None:
    assert linearize([cell("a1", 0, 5, "b1", "a1"), cell("b1", 1, 4, "b1")])
    assert linearize([cell("a1", 0, 5, "a1"), cell("b1", 1, 4, "a1", "b1")])


def test_a_read_that_misses_an_earlier_cell_is_found() -> None:
    assert linearize([cell("a1", 0, 1, "a1"), read(2, 3)]) is None


def test_a_lost_effect_is_found() -> None:
    history = [cell("a1", 0, 1, "a1"), cell("a2", 2, 3, "a2")]
    assert linearize(history) is None


def test_two_reads_that_disagree_on_the_order_are_found() -> None:
    cells = [cell("a1", 0, 9, blind=True), cell("b1", 0, 9, blind=True)]
    assert linearize([*cells, read(1, 2, "a1"), read(3, 4, "a1", "b1")])
    assert linearize([*cells, read(1, 2, "a1"), read(3, 4, "b1", "a1")]) is None


def test_an_effect_that_comes_twice_is_found() -> None:
    assert linearize([cell("a1", 0, 1, "a1"), read(2, 3, "a1", "a1")]) is None


def test_a_cell_that_had_no_effect_by_its_word_may_not_be_seen() -> None:
    lost = cell("a1", 0, 1, outcome="lost")
    assert linearize([lost, read(2, 3)])
    assert linearize([lost, read(2, 3, "a1")]) is None
    assert linearize([cell("a1", 0, 1, outcome="not run"), read(2, 3, "a1")]) is None


def test_a_cell_without_an_answer_has_its_effect_at_any_later_time_or_never_but_not_twice() -> None:
    silent = cell("a1", 0, 1, outcome="unknown")
    assert linearize([silent, read(2, 3)])
    assert linearize([silent, read(2, 3, "a1")])
    assert linearize([silent, read(2, 3), read(4, 5, "a1")])
    assert linearize([silent, read(2, 3, "a1"), read(4, 5)]) is None


def test_a_cell_may_not_be_seen_before_it_was_sent() -> None:
    assert linearize([read(0, 1, "a1"), cell("a1", 2, 3, "a1")]) is None


def test_a_value_not_called_durable_may_be_taken_back_only_where_replies_come_first() -> None:
    history = [cell("a1", 0, 1, "a1", durable=False), cell("a2", 2, 3, "a2", durable=False)]
    assert linearize(history, undurable=True)
    assert linearize(history) is None


def test_a_value_called_durable_is_never_taken_back() -> None:
    history = [cell("a1", 0, 1, "a1"), cell("a2", 2, 3, "a2", durable=False)]
    assert linearize(history, undurable=True) is None


def test_only_the_latest_cells_may_be_taken_back() -> None:
    first = cell("a1", 0, 1, "a1", durable=False)
    second = cell("a2", 2, 3, "a1", "a2", durable=False)
    assert linearize([first, second, read(4, 5, "a1")], undurable=True)
    assert linearize([first, second, read(4, 5, "a2")], undurable=True) is None


@pytest.mark.parametrize("seed", each_nth(range(20), 5))
def test_every_history_that_a_list_made_has_an_order_and_a_wrong_one_has_none(seed: int) -> None:
    chance = random.Random(seed)
    state: list[str] = []
    history = []
    for number in range(60):
        at = float(number)
        outcome: Outcome = "unknown" if chance.random() < 0.1 else "done"
        if outcome == "done" or chance.random() < 0.5:
            state.append(f"c{number}")
        began, ended = at - chance.uniform(0, 2), at + chance.uniform(0, 2)
        history.append(cell(f"c{number}", began, ended, *state, outcome=outcome))
    assert linearize(history)
    without = [name for name in state if name != state[len(state) // 2]]
    assert linearize([*history, read(100, 101, *without)]) is None


def test_many_cells_of_three_clients_are_decided_within_the_limit_of_steps() -> None:
    names = [f"c{number}" for number in range(300)]
    history = [
        cell(name, number - 1.4, number + 1.4, *names[: number + 1]) for number, name in enumerate(names)
    ]
    assert linearize(history)
    assert linearize([*history, read(400, 401, *names[:-1])]) is None


def test_an_undo_leaves_a_state_from_before_and_nothing_else() -> None:
    before = [cell("a1", 0, 1, "a1"), cell("a2", 2, 3, "a1", "a2")]
    undo = Operation("u", "undo", "a", 4, 5, "done", ("a1", "a2"))
    for left in ((), ("a1",), ("a1", "a2")):
        assert linearize([*before, undo, read(6, 7, *left)])
    assert linearize([*before, undo, cell("a3", 6, 7, "a1", "a3")])
    assert linearize([*before, undo, read(6, 7, "a2")]) is None
    assert linearize([*before, undo, read(6, 7, "a1"), read(8, 9, "a1", "a2")]) is None
