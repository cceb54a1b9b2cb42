"""Whoever a scheduler refuses asks it less and less often, until it has another token or is let in."""

from __future__ import annotations

import pytest

from replkernel.leasing import standing
from replkernel.leasing.advice import REFUSED_S, REFUSED_S_MAX, Patience
from replkernel.leasing.standing import CALM_S, UNTOLD, Asker, Standing
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


class Gone:
    """A scheduler that comes and goes, and who asks about it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: str = "") -> None:
        self.now, self.said = 0.0, (None, UNTOLD)  # type: tuple[float, tuple[SchedulerStatus | None, Standing]]
        monkeypatch.setattr(standing, "ask_scheduler", lambda _env: self.said)
        monkeypatch.setattr(standing, "find_scheduler", lambda _env: ("http://s", "token"))
        monkeypatch.setattr(standing, "last_url", lambda _env: last)
        self.asker = Asker({}, lambda: self.now)

    def ask(self, at: float) -> tuple[SchedulerStatus | None, Standing]:
        self.now = at
        return self.asker.ask()


AWAY = SchedulerStatus("http://s", "it does not answer")
WELL = SchedulerStatus("http://s", waiting=1)
TOLD = Standing((), (), ())


@pytest.mark.parametrize("gone", [AWAY, None])
def test_a_scheduler_that_has_gone_for_a_moment_is_told_as_it_was(
    monkeypatch: pytest.MonkeyPatch, gone: SchedulerStatus | None
) -> None:
    it = Gone(monkeypatch, last="http://s")
    it.said = (WELL, TOLD)
    assert it.ask(0.0)[0] == WELL
    it.said = (gone, UNTOLD)
    assert it.ask(2.0) == (WELL, TOLD)
    assert it.ask(2.0 + CALM_S - 0.1)[0] == WELL
    assert it.ask(2.0 + CALM_S)[0] == gone
    it.said = (WELL, TOLD)
    assert it.ask(20.0)[0] == WELL
    it.said = (gone, UNTOLD)
    told, leases = it.ask(1000.0)
    assert told == SchedulerStatus("http://s") and leases == UNTOLD, "what it said long ago counts no more"


@pytest.mark.parametrize("gone", [AWAY, None])
def test_who_has_only_begun_to_ask_gives_a_scheduler_the_same_moment(
    monkeypatch: pytest.MonkeyPatch, gone: SchedulerStatus | None
) -> None:
    it = Gone(monkeypatch, last="http://s")
    it.said = (gone, UNTOLD)
    assert it.ask(0.0) == (SchedulerStatus("http://s"), UNTOLD)
    assert it.ask(CALM_S)[0] == gone


def test_where_no_scheduler_ever_was_that_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Gone(monkeypatch).ask(0.0)[0] is None
