"""Whoever a scheduler refuses asks it less and less often, until it has another token or is let in."""

from __future__ import annotations

import pytest

from replkernel.leasing import standing
from replkernel.leasing.advice import REFUSED_S, REFUSED_S_MAX, Patience
from replkernel.leasing.standing import UNTOLD, Asker, Standing
from replkernel.protocol.status import SchedulerStatus

REFUSED = SchedulerStatus("http://s", "it refuses our token", refused=True)


def test_the_pause_doubles_up_to_its_bound_and_begins_anew_once_let_in() -> None:
    patience = Patience()
    pauses = [patience.pause_s() for _ in range(7)]
    assert pauses == [REFUSED_S, 60.0, 120.0, 240.0, 480.0, REFUSED_S_MAX, REFUSED_S_MAX]
    patience.forget()
    assert patience.pause_s() == REFUSED_S


def test_a_page_that_asks_every_2_s_asks_a_scheduler_that_refuses_it_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked, token = 0.0, [], ["revoked"]

    def ask(_env: object) -> tuple[SchedulerStatus, Standing]:
        asked.append(now)
        return (REFUSED if token[0] == "revoked" else SchedulerStatus("http://s")), UNTOLD

    monkeypatch.setattr(standing, "ask_scheduler", ask)
    monkeypatch.setattr(standing, "find_scheduler", lambda _env: ("http://s", token[0]))
    asker = Asker({}, lambda: now)
    while now < 1000.0:
        assert asker.ask()[0] == REFUSED, "what is wrong is told all the same"
        now += 2.0
    assert asked == [0.0, 30.0, 90.0, 210.0, 450.0, 930.0]
    token[0] = "new"
    assert asker.ask()[0] == SchedulerStatus("http://s"), "another token is tried at once"
    asker.ask()
    assert len(asked) == 8, "who is let in asks as often as before"
