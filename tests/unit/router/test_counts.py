"""A count that a client has seen is given to no other cell, also when who gave it is lost."""

from __future__ import annotations

from replkernel.router.core.contents import ExecuteOptions
from replkernel.router.core.counts import Counts

STORED = ExecuteOptions("x = 1")
HIDDEN = ExecuteOptions("x = 1", store_history=False)
SILENT = ExecuteOptions("x = 1", silent=True)


def test_while_nothing_is_lost_replicas_count_by_themselves() -> None:
    counts = Counts()
    counts.answered(STORED, 1)
    counts.answered(STORED, 2)
    assert counts.at_least == 0


def test_a_lost_cell_keeps_its_count() -> None:
    counts = Counts()
    counts.answered(STORED, 4)
    counts.lost()
    counts.ended(STORED, 5)
    assert counts.at_least == 5
    counts.answered(STORED, 6)
    assert counts.at_least == 0


def test_cells_whose_results_are_lost_after_their_reply_keep_their_counts() -> None:
    counts = Counts()
    counts.answered(STORED, 4)
    counts.lost()
    assert counts.at_least == 4


def test_a_router_that_takes_over_counts_from_the_highest_that_was_seen() -> None:
    counts = Counts()
    for seen in (3, 4, 0):  # The last one has not begun.
        counts.resumed(seen)
    assert counts.at_least == 4


def test_cells_that_are_not_counted_change_nothing() -> None:
    counts = Counts()
    counts.answered(STORED, 4)
    counts.answered(HIDDEN, 5)
    counts.answered(SILENT, 5)
    counts.ended(HIDDEN, 5)
    counts.ended(SILENT, 5)
    counts.lost()
    assert counts.at_least == 4


def test_a_count_that_user_code_set_back_is_not_raised_again() -> None:
    counts = Counts()
    counts.answered(STORED, 40)
    counts.answered(STORED, 1)
    counts.lost()
    assert counts.at_least == 1
