"""What every launcher must do, as a suite for pytest: inherit it, and say how yours is made and looked at.

The one module here that needs pytest (with pytest-asyncio and `asyncio_mode = "auto"`); nothing else imports
it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from replkernel_server.launchers.protocol import (
    GpusHeld,
    HostJoined,
    HostLost,
    Launcher,
    LauncherFailed,
    Word,
)

PATIENCE_S = 90.0


class Heard:
    """What a launcher has told, in order."""

    def __init__(self) -> None:
        self.words: list[Word] = []

    def __call__(self, word: Word) -> None:
        asyncio.get_running_loop()  # On the loop, as the Protocol says.
        self.words.append(word)

    def hosts(self) -> set[str]:
        """Return the hosts that are there by now."""
        here: set[str] = set()
        for word in self.words:
            if isinstance(word, HostJoined):
                here.add(word.host)
            elif isinstance(word, HostLost):
                here.discard(word.host)
        return here

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a condition."""
        until = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until, self.words
            await asyncio.sleep(0.05)


class LauncherContract:
    """Inherit, and override the fixture `launcher` (two hosts at least, one more to come) and `listens`."""

    agents_come_along = False
    """Whether a host has its agent from the beginning, as a batch job has."""

    @pytest.fixture
    async def launcher(self) -> Launcher:
        raise NotImplementedError

    def listens(self, host: str) -> bool:
        """Say whether the agent of a host is there."""
        raise NotImplementedError

    @pytest.fixture
    async def opened(self, launcher: Launcher) -> AsyncIterator[Heard]:
        heard = Heard()
        await launcher.open(heard)
        await heard.until(lambda: len(heard.hosts()) >= 2)
        yield heard
        for host in heard.hosts():
            await launcher.stop_agent(host)

    async def test_an_agent_runs_until_it_is_stopped(self, launcher: Launcher, opened: Heard) -> None:
        first, second = sorted(opened.hosts())[:2]
        await launcher.start_agent(first)
        assert self.listens(first)
        assert self.agents_come_along or not self.listens(second)
        await launcher.start_agent(first)
        await launcher.start_agent(second)
        assert self.listens(first) and self.listens(second)
        await launcher.stop_agent(first)
        assert not self.listens(first)
        assert self.listens(second)
        await launcher.stop_agent(first)
        await launcher.start_agent(first)
        assert self.listens(first)

    async def test_agents_stay_when_it_is_closed(self, launcher: Launcher, opened: Heard) -> None:
        host = min(opened.hosts())
        await launcher.start_agent(host)
        await launcher.close()
        await launcher.close()
        assert self.listens(host)
        await launcher.open(opened)
        await launcher.start_agent(host)
        assert self.listens(host)

    async def test_a_host_that_nobody_has_is_refused(self, launcher: Launcher, opened: Heard) -> None:
        with pytest.raises(LauncherFailed, match="nowhere"):
            await launcher.start_agent("nowhere")
        assert "nowhere" not in opened.hosts()

    async def test_the_hosts_names_begin_as_it_says(self, launcher: Launcher, opened: Heard) -> None:
        assert all(host.startswith(launcher.capabilities.host_prefix) for host in opened.hosts())

    async def test_a_gpu_is_counted_until_it_is_left(self, launcher: Launcher, opened: Heard) -> None:
        host = min(opened.hosts())
        if launcher.capabilities.counts_gpus:
            await opened.until(lambda: GpusHeld(host, {}) in opened.words)
        first = await launcher.take_gpu(host, "place-0")
        second = await launcher.take_gpu(host, "place-1")
        assert first is not None and second is not None
        assert first != second
        await launcher.leave_gpu(host, "place-0")
        await launcher.leave_gpu(host, "place-0")
        again = await launcher.take_gpu(host, "place-2")
        assert again not in (None, second)
        await launcher.leave_gpu(host, "place-1")
        await launcher.leave_gpu(host, "place-2")

    async def test_a_host_more_comes_and_is_given_back(self, launcher: Launcher, opened: Heard) -> None:
        if not launcher.capabilities.scales:
            with pytest.raises(LauncherFailed):
                await launcher.ask_hosts(1)
            return
        before = set(opened.hosts())
        await launcher.ask_hosts(1)
        await opened.until(lambda: len(opened.hosts()) == len(before) + 1)
        (new,) = opened.hosts() - before
        await launcher.start_agent(new)
        assert self.listens(new)
        await launcher.give_back(new)
        assert not self.listens(new)
