"""The cells that a lost process took along: what is told with the next cell, and in the state later."""

from __future__ import annotations

import pytest

from replkernel.kernel.lost_cells import SHOWN_S, Losses, LostCells, lost_cells
from replkernel.protocol.agent_to_process import BegunAfresh
from replkernel.protocol.envelope import Afresh
from replkernel.records import ReplicaId, Seq


def begun(back: int, reached: int = 0, ago_s: float | None = 4.2) -> BegunAfresh:
    return BegunAfresh(Seq(9), back, ReplicaId("r1"), reached, ago_s)


@pytest.mark.parametrize(
    ("told", "afresh", "said"),
    [
        (begun(65), Afresh(65), ""),
        (
            begun(65, 67),
            Afresh(67),
            (
                "Replica r1 died before cells 66 and 67 were durable: "
                "the notebook is back at cell 65 (4 s ago); run cells 66 and 67 again."
            ),
        ),
        (
            begun(65, 0, 200.0),
            Afresh(66, unlogged=True),
            (
                "Replica r1 died before cell 66 was durable: the notebook is back at cell 65 (3 min ago); "
                "run cell 66 again."
            ),
        ),
        (
            begun(0, 3, None),
            Afresh(),
            (
                "Replica r1 died before cells 1 to 3 were durable: the notebook is back at its beginning; "
                "run cells 1 to 3 again."
            ),
        ),
        (
            begun(65, 65),
            Afresh(65),
            (
                "Replica r1 died before what ran after cell 65 was durable: "
                "the notebook is back at cell 65 (4 s ago)."
            ),
        ),
    ],
)
def test_lost_cells_are_named_with_how_far_the_notebook_is_back(
    told: BegunAfresh, afresh: Afresh, said: str
) -> None:
    lost = lost_cells(told, afresh)
    assert ("" if lost is None else lost.notice()) == said


def lost(last: int = 67) -> LostCells:
    return LostCells("Replica r1", 65, last, 4.2)


def test_the_state_says_of_a_loss_when_it_was() -> None:
    losses = Losses()
    assert losses.said(5.0) == []
    losses.happened(lost(), 10.0)
    assert losses.said(250.0) == [
        "Cells 66 and 67 were lost 4 min ago, when replica r1 died: run them again."
    ]
    losses.happened(lost(66), 20.0)
    assert losses.said(50.0) == ["Cell 66 was lost 30 s ago, when replica r1 died: run it again."]
    losses.happened(lost(65), 20.0)
    assert losses.said(50.0) == ["What ran after cell 65 was lost 30 s ago, when replica r1 died."]


def test_a_loss_is_no_longer_said_once_as_many_cells_ran_or_after_a_while() -> None:
    losses = Losses()
    losses.happened(lost(), 0.0)
    losses.cell_begins(["step()"])
    losses.cell_begins(["%replkernel state"])
    assert losses.said(1.0)
    losses.cell_begins(["step()"])
    assert losses.said(1.0) == []
    losses.happened(lost(), 0.0)
    assert losses.said(SHOWN_S - 1)
    assert losses.said(SHOWN_S) == []
