"""A host and its scheduler: a real agent offers its GPUs, beats, leaves in order, and can do without one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest

from replkernel.agent.io import announcer as module
from replkernel.agent.io.announcer import Announcer
from replkernel.agent.io.gpus import FakeGpus, Reading
from replkernel.client.inquiry import ask_agents
from replkernel.leasing.wire import (
    WIRE_VERSION,
    Hello,
    HostBeat,
    HostLeaves,
    HostOffer,
    Refused,
    Welcome,
)
from replkernel.protocol.status import GpuStatus
from tests.support.channel_server import TOKEN, ChannelServer, until

AGENT = [sys.executable, "-m", "replkernel.cli", "agent", "--name", "h2", "--fake-gpus", "4"]


@pytest.fixture
async def scheduler(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelServer]:
    server = ChannelServer()
    await server.start()
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", server.url)
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", TOKEN)
    yield server
    await server.stop()


@contextmanager
def agent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(AGENT, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def of_type(server: ChannelServer, kind: type) -> list[object]:
    return [message for message in server.heard if isinstance(message, kind)]


async def test_a_named_agent_offers_pretended_gpus_beats_and_leaves(scheduler: ChannelServer) -> None:
    with agent() as process:
        await until(lambda: len(of_type(scheduler, HostBeat)) >= 2)
        assert scheduler.heard[0] == Hello(WIRE_VERSION, "agent", "h2")
        offer = scheduler.heard[1]
        assert isinstance(offer, HostOffer)
        assert [gpu.uuid for gpu in offer.gpus] == [f"GPU-fake-h2-{number}" for number in range(4)]
        assert offer.gpus[0].memory_gb == 16.0 and offer.cpu >= 1 and offer.memory_gb > 0
        document = await asyncio.to_thread(ask_agents, os.environ, 20.0)
        assert [len(host.gpus) for host in document.hosts] == [4]
        process.send_signal(signal.SIGTERM)
        await until(lambda: scheduler.heard[-1] == HostLeaves())
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert len(of_type(scheduler, HostOffer)) == 1


async def test_a_killed_agent_says_nothing_and_the_next_one_offers_again(scheduler: ChannelServer) -> None:
    with agent() as process:
        await until(lambda: of_type(scheduler, HostBeat))
        process.kill()
        await until(lambda: not scheduler.clients)
        assert not of_type(scheduler, HostLeaves)
    with agent():
        await until(lambda: len(of_type(scheduler, HostOffer)) == 2)


async def test_a_scheduler_that_comes_back_is_told_again(scheduler: ChannelServer) -> None:
    with agent():
        await until(lambda: of_type(scheduler, HostBeat))
        await scheduler.stop()
        scheduler.heard.clear()
        await scheduler.start()
        await until(lambda: of_type(scheduler, HostBeat))
        assert [type(message) for message in scheduler.heard[:3]] == [Hello, HostOffer, HostBeat]


async def test_an_agent_in_the_foreground_stays_when_nobody_needs_it(
    scheduler: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_AGENT_IDLE_S", "0.1")
    with agent() as process:
        await until(lambda: len(of_type(scheduler, HostBeat)) >= 2)
        assert process.poll() is None


class Slow:
    """GPUs whose driver hangs until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()

    def read(self) -> Reading:
        self.go.wait(30)
        return FakeGpus("h", 1).read()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_S", 0.05)
    monkeypatch.setattr(module, "SEARCH_S", 0.05)
    monkeypatch.setattr(module, "READ_S_MAX", 0.05)


@pytest.fixture
async def announce() -> AsyncIterator[Callable[..., list[tuple[GpuStatus, ...]]]]:
    made: list[Announcer] = []

    def start(reader: Slow | FakeGpus) -> list[tuple[GpuStatus, ...]]:
        told: list[tuple[GpuStatus, ...]] = []
        made.append(Announcer("h", reader, os.environ, lambda gpus: told.append(gpus) or gpus))
        made[-1].start()
        return told

    yield start
    for announcer in made:
        await announcer.close(leaves=False)


@pytest.mark.usefixtures("quick")
async def test_a_driver_that_hangs_delays_no_beat(
    scheduler: ChannelServer, announce: Callable[..., list[tuple[GpuStatus, ...]]]
) -> None:
    reader = Slow()
    announce(reader)
    await until(lambda: any(beat.gpus for beat in of_type(scheduler, HostBeat)))  # type: ignore[attr-defined]
    reader.go.clear()
    scheduler.heard.clear()
    await until(lambda: of_type(scheduler, HostBeat).count(HostBeat()) >= 3)
    reader.go.set()
    await until(lambda: scheduler.heard[-1] != HostBeat())


@pytest.mark.usefixtures("quick")
async def test_without_a_scheduler_the_gpus_are_known_and_one_that_comes_is_found(
    monkeypatch: pytest.MonkeyPatch, announce: Callable[..., list[tuple[GpuStatus, ...]]]
) -> None:
    told = announce(FakeGpus("h", 3))
    await until(lambda: told)
    assert len(told[0]) == 3
    server = ChannelServer()
    await server.start()
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", server.url)
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", TOKEN)
    await until(lambda: of_type(server, HostBeat))
    await server.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
async def test_a_host_that_is_not_taken_goes_on_quietly(
    scheduler: ChannelServer,
    announce: Callable[..., list[tuple[GpuStatus, ...]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = announce(FakeGpus("h", 1))
    await until(lambda: of_type(scheduler, HostBeat))
    scheduler.say(Refused("your token may not offer hosts"))
    await until(lambda: "may not offer hosts" in caplog.text)
    scheduler.heard.clear()
    seen = len(told)
    await until(lambda: len(told) > seen + 5)
    assert scheduler.heard == [] and len(scheduler.clients) == 1
    assert caplog.text.count("may not offer hosts") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
async def test_another_scheduler_takes_the_place_of_one_that_is_gone(
    scheduler: ChannelServer,
    monkeypatch: pytest.MonkeyPatch,
    announce: Callable[..., list[tuple[GpuStatus, ...]]],
) -> None:
    announce(FakeGpus("h", 1))
    await until(lambda: of_type(scheduler, HostBeat))
    await scheduler.stop()
    other = ChannelServer()
    other.greeting = Welcome(WIRE_VERSION, "ada")
    await other.start()
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", other.url)
    await until(lambda: of_type(other, HostOffer))
    await other.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
async def test_an_address_that_is_none_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
    announce: Callable[..., list[tuple[GpuStatus, ...]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", "localhost:80")
    told = announce(FakeGpus("h", 1))
    await until(lambda: len(told) > 5)
    assert caplog.text.count("REPLKERNEL_SCHEDULER_URL") == 1
