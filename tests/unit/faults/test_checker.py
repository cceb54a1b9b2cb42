"""Each broken promise is found and named, and a history that kept all is left in peace."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.e2e.faults.checker import LOSS_TOLD, judge
from tests.e2e.faults.history import OUTGREW_STORE, History, Operation

replace = msgspec.structs.replace


def cell(name: str, at: float, *seen: str, **more: Any) -> Operation:
    given = {"outcome": "done", "seen": seen, "durable": True, "count": int(at) + 1, "replica": "r1"}
    return Operation(name, "append", "a", at, at + 0.5, **(given | more))


FIRST = cell("a1", 0, "a1", large=7)
SECOND = cell("a2", 1, "a1", "a2")
GOOD = History(
    (FIRST, SECOND),
    begun={"a1": 1, "a2": 1},
    audited={"r1": ("a1", "a2"), "r2": ("a1", "a2"), "r3": ("a1", "a2")},
    large={"r1": {"a1": 7}, "r2": {"a1": 7}, "r3": {"a1": 7}},
)


def only(history: History) -> str:
    (found,) = judge(history)
    return found


def test_a_history_that_kept_every_promise_is_not_blamed() -> None:
    assert judge(GOOD) == []


def test_a_cell_that_ran_twice_is_found() -> None:
    assert only(replace(GOOD, begun={"a1": 2, "a2": 1})) == "a1 ran 2 times"


def test_a_cell_that_ran_though_it_was_aborted_is_found() -> None:
    aborted = cell("a3", 2, outcome="not run", seen=None, count=0, said="aborted")
    assert "a3 ran though it was said not to" in only(
        replace(GOOD, operations=(FIRST, SECOND, aborted), begun={"a1": 1, "a2": 1, "a3": 1})
    )


def test_an_answered_cell_that_is_gone_is_found() -> None:
    found = judge(replace(GOOD, audited={"r1": ("a1",)}, large={}))
    assert found == ["a2 was answered, and is lost on r1"]


def test_a_lost_cell_whose_effect_is_there_is_found() -> None:
    lost = cell("a3", 2, outcome="lost", seen=None, said="killed")
    everything = ("a1", "a2", "a3")
    found = judge(replace(GOOD, operations=(FIRST, SECOND, lost), audited={"r1": everything}, large={}))
    assert found == ["r1 has a3, which was said to have no effect (killed)"]


def test_replicas_that_differ_are_found() -> None:
    audited = GOOD.audited | {"r3": ("a2", "a1")}
    assert only(replace(GOOD, audited=audited)).startswith("the replicas differ")


def test_a_damaged_large_value_is_found() -> None:
    assert only(replace(GOOD, large=GOOD.large | {"r2": {"a1": 8}})) == (
        "the large value of a1 is damaged or gone on r2"
    )


def test_a_large_value_may_be_gone_when_it_was_never_durable_and_the_user_was_told() -> None:
    one_less = GOOD.large | {"r2": {"a1": 8}}
    hasty = replace(FIRST, durable=False)
    told = replace(SECOND, said=f"`large` is as it was after cell 1: {OUTGREW_STORE} changed since then")
    assert list(judge(replace(GOOD, operations=(hasty, told), large=one_less))) == []
    assert list(judge(replace(GOOD, operations=(hasty, SECOND), large=one_less))), "nobody was told"
    assert list(judge(replace(GOOD, operations=(FIRST, told), large=one_less))), "it was durable"


def test_a_count_that_is_given_twice_or_left_out_is_found() -> None:
    again = replace(SECOND, count=1)
    assert only(replace(GOOD, operations=(FIRST, again))) == "execution count 1 was given to a1, a2"
    later = replace(SECOND, count=4)
    assert "[2, 3] are missing" in only(replace(GOOD, operations=(FIRST, later)))


def test_a_count_may_be_missing_for_a_cell_that_nobody_answered() -> None:
    silent = cell("a3", 0.6, outcome="unknown", seen=None, count=0)
    later = replace(SECOND, count=3)
    assert judge(replace(GOOD, operations=(FIRST, silent, later))) == []


def test_a_cell_that_is_never_answered_is_found() -> None:
    hung = cell("a3", 2, outcome="hung", seen=None, count=0)
    assert only(replace(GOOD, operations=(FIRST, SECOND, hung))).startswith("a3 was never answered")


def test_a_cell_that_is_lost_in_a_process_that_was_dead_before_is_found() -> None:
    lost = cell("a3", 2, outcome="lost", seen=None, said="killed")
    history = replace(GOOD, operations=(FIRST, SECOND, lost))
    assert "was dead before" in only(replace(history, kills=(1.9,)))
    assert judge(replace(history, kills=(2.1,))) == []
    assert judge(replace(history, kills=(1.9,), begun=GOOD.begun | {"a3": 1})) == []


def test_where_replies_come_first_a_loss_must_be_told() -> None:
    hasty = replace(SECOND, durable=False)
    after = cell("a3", 2, "a1", "a3", durable=False)
    history = replace(
        GOOD, operations=(FIRST, hasty, after), audited={"r1": ("a1", "a3")}, large={}, undurable=True
    )
    assert only(history) == "a2 was answered, is lost on r1, and nobody was told"
    told = replace(after, said=f"Replica r1 died before cell 2 was durable: {LOSS_TOLD} cell 1")
    assert judge(replace(history, operations=(FIRST, hasty, told))) == []


def test_a_mixture_of_cells_is_found() -> None:
    assert judge(replace(GOOD, operations=(replace(FIRST, marked=1), replace(SECOND, marked=2)))) == []
    assert only(replace(GOOD, operations=(replace(FIRST, marked=1), replace(SECOND, marked=1)))) == (
        "a2 saw a mixture of cells: 2 in the list, 1 by the marks"
    )


def test_leftovers_and_the_fault_that_broke_a_run_are_findings() -> None:
    assert judge(replace(GOOD, left=("process 5",), broken=("no host",))) == [
        "no host",
        "left behind: process 5",
    ]
