"""Who listens is told everything, then changes; who does not read is not sent more than fits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from replkernel_server.live import feed as driver
from replkernel_server.live.documents import Changes, Message, Snapshot
from replkernel_server.live.feed import LISTENERS_MAX, Feed

from replkernel.leasing import standing
from replkernel.leasing.standing import UNTOLD, Standing
from replkernel.protocol.status import HostStatus, SchedulerStatus, StatusDocument


class NoKernels:
    def list_kernel_ids(self) -> list[str]:
        return []


class Listener:
    def __init__(self) -> None:
        self.ready = True
        self.told: list[Message] = []

    def tell(self, message: Message) -> None:
        self.told.append(message)


class World:
    """A feed whose agents say what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.hosts: tuple[str, ...] = ("h1",)
        monkeypatch.setattr(driver, "ask_agents", self._agents)
        monkeypatch.setattr(standing, "ask_scheduler", self._scheduler)
        monkeypatch.setattr(driver, "ask_account", self._account)
        monkeypatch.setattr(driver, "ACCOUNT_S", 0.0)
        self.scheduler: SchedulerStatus | None = None
        self.scheduler_asked = self.account_asked = 0
        monkeypatch.setattr(driver, "AGENTS_S", 0.0)
        self.feed = Feed(NoKernels(), {}, 1.0)

    def _agents(self, _env: Any, _timeout_s: float) -> StatusDocument:
        self.asked += 1
        return StatusDocument(hosts=tuple(HostStatus(name) for name in self.hosts))

    def _scheduler(self, _env: Any) -> tuple[SchedulerStatus | None, Standing]:
        self.scheduler_asked += 1
        return self.scheduler, UNTOLD

    def _account(self, _env: Any) -> None:
        self.account_asked += 1

    async def turns(self) -> None:
        """Let the feed hear what the agents say now, and tell it."""
        for _ in range(2):
            self.feed.turn()
            while self.feed._asking is not None:
                await asyncio.wait([self.feed._asking])
        self.feed.turn()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_who_comes_is_told_everything_then_changes(world: World) -> None:
    first = Listener()
    world.feed.add(first)
    await world.turns()
    assert [type(message) for message in first.told] == [Snapshot]
    world.hosts = ("h1", "h2")
    await world.turns()
    last = first.told[-1]
    assert isinstance(last, Changes) and [host.name for host in last.hosts] == ["h2"]
    second = Listener()
    world.feed.add(second)
    assert isinstance(second.told[0], Snapshot) and second.told[0].seq == last.seq
    await world.feed.close()


async def test_that_nothing_has_changed_is_told_too_from_time_to_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    world.feed.add(listener)
    await world.turns()
    await world.turns()
    assert len(listener.told) == 1
    monkeypatch.setattr(driver, "BEAT_S", 0.0)
    world.feed.turn()
    (first, beat) = listener.told
    assert isinstance(first, Snapshot) and isinstance(beat, Changes)
    assert beat == Changes(first.seq + 1, beat.now)
    await world.feed.close()


async def test_who_does_not_read_is_told_nothing_more_until_he_has_then_everything(world: World) -> None:
    slow = Listener()
    world.feed.add(slow)
    await world.turns()
    slow.ready = False
    for number in range(5):
        world.hosts = (f"h{number}",)
        await world.turns()
    assert len(slow.told) == 1
    slow.ready = True
    await world.turns()
    assert len(slow.told) == 2
    last = slow.told[-1]
    assert isinstance(last, Snapshot) and [host.name for host in last.hosts] == ["h4"]
    await world.feed.close()


async def test_nobody_is_asked_once_nobody_listens(world: World) -> None:
    listener = Listener()
    world.feed.add(listener)
    await world.turns()
    world.feed.remove(listener)
    assert world.feed._turning is not None
    await world.feed._turning
    asked = world.asked
    assert (world.feed.listeners, world.feed._turning, world.feed._lines) == (0, None, {})
    assert world.asked == asked
    await world.feed.close()


async def test_a_scheduler_that_refuses_the_token_is_left_alone_until_somebody_else_listens(
    world: World,
) -> None:
    world.scheduler = SchedulerStatus("http://s", "it refuses our token", refused=True)
    listener = Listener()
    world.feed.add(listener)
    for _ in range(5):
        await world.turns()
    assert (world.scheduler_asked, world.account_asked) == (1, 0)
    snapshot = listener.told[0]
    assert isinstance(snapshot, Snapshot) and snapshot.scheduler.trouble == "it refuses our token"
    world.feed.remove(listener)
    assert world.feed._turning is not None
    await world.feed._turning
    world.scheduler = SchedulerStatus("http://s")
    world.feed.add(Listener())
    await world.turns()
    assert world.scheduler_asked > 1 and world.account_asked > 0
    await world.feed.close()


async def test_no_more_listen_than_the_bound(world: World) -> None:
    taken = [world.feed.add(Listener()) for _ in range(LISTENERS_MAX + 1)]
    assert taken.count(False) == 1
    await world.feed.close()
