"""When the router's line gives a scheduler up, in time that is played."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from replkernel.leasing import starting
from replkernel.router.core import events
from replkernel.router.io.scheduler_link import AGAIN_S, GIVE_UP_S, SchedulerLink
from tests.support.played_time import PlayedTime

HOURS_S = 5 * 3600.0
SERVER = ("http://127.0.0.1:1", "token")


class Line:
    """A link whose thread is this one; `server` is what there is to be found."""

    def __init__(self, loop: PlayedTime) -> None:
        self.loop = loop
        self.server = ("", "")
        self.heard: list[events.Event] = []
        self.link = SchedulerLink("k", {}, self.heard.append)
        self.link._news = asyncio.Event()

    def waits(self) -> asyncio.Task[None]:
        """Have it wait until the scheduler is gone."""
        return self.loop.create_task(self.link._until_gone(lambda: self.server))

    def seeks(self) -> asyncio.Task[tuple[str, str]]:
        """Have it look for a scheduler without starting any."""
        return self.loop.create_task(self.link._sought(lambda: self.server))

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture
def line() -> Iterator[Line]:
    loop = PlayedTime()
    try:
        yield Line(loop)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def test_a_scheduler_that_was_there_for_hours_is_waited_for_like_any(line: Line) -> None:
    line.link._came_up()
    waiting = line.waits()
    line.later(HOURS_S)
    line.link._went_down("The server is started again.")
    line.later(GIVE_UP_S - 1)
    assert not waiting.done(), "it has been away for less than GIVE_UP_S"
    line.later(2)
    assert waiting.done()


def test_a_cell_gives_a_scheduler_that_was_there_for_hours_the_time_to_come_back(line: Line) -> None:
    line.link._came_up()
    waiting = line.waits()
    line.later(HOURS_S)
    line.link._went_down("The server is started again.")
    line.link._needed = True
    line.link._wake()
    line.later(AGAIN_S - 1)
    assert not waiting.done()
    line.server = SERVER
    line.later(AGAIN_S)
    assert not waiting.done(), "it is back, and the channel finds it"


def test_a_scheduler_is_looked_for_until_one_is_there_and_none_is_started(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "find_or_start", lambda env: pytest.fail("one is started"))
    seeking = line.seeks()
    line.later(HOURS_S)
    assert not seeking.done()
    line.server = SERVER
    line.later(AGAIN_S)
    assert seeking.result() == SERVER


def test_a_cell_that_needs_a_scheduler_meanwhile_has_one_started(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    async def start(env: object) -> tuple[str, str]:
        started.append(env)
        return SERVER

    monkeypatch.setattr(starting, "find_or_start", start)
    seeking = line.seeks()
    line.later(1)
    line.link._needed = True
    line.link._wake()
    line.later(AGAIN_S)
    assert seeking.result() == SERVER
    assert len(started) == 1


def test_a_router_that_ends_while_it_looks_starts_none(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "find_or_start", lambda env: pytest.fail("one is started"))
    seeking = line.seeks()
    line.later(1)
    line.link._closing = True
    line.link._wake()
    line.later(1)
    assert seeking.result() == ("", "")
