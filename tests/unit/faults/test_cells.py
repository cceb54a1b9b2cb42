"""What a cell's error says of its effect is read as the product means it."""

from __future__ import annotations

import pytest

from replkernel.errors import CellEffect, ExecutorLost
from tests.e2e.faults.cells import outcome_of
from tests.e2e.faults.history import Outcome


@pytest.mark.parametrize(
    ("effect", "outcome"), [("none", "lost"), ("unsettled", "unknown"), ("kept", "unknown")]
)
def test_each_thing_that_a_lost_cell_may_have_left_is_known(effect: CellEffect, outcome: Outcome) -> None:
    error = ExecutorLost("killed by SIGKILL", effect)
    content = {"status": "error", "ename": "ExecutorLost", "evalue": str(error)}
    assert outcome_of(content, {}) == outcome
