"""The agent's part of cells on several hosts: whose launchers it starts, finds again, and clears up after."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import pytest_asyncio
import zmq

from replkernel.agent.io.death import start_time
from replkernel.hosts.far_sockets import listen_far, new_keys
from replkernel.hosts.reach import Reach
from replkernel.jobs.words import key_of
from replkernel.leasing.wire import StartRanks
from replkernel.protocol.message import encode
from replkernel.ranks.starting import Launchers
from replkernel.ranks.words import Begin, Program, seal_of

WAIT_S = 20.0
LEAVES = """\
import os, subprocess, sys, time
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open("left.part", "w") as file:
    file.write(str(left.pid))
os.rename("left.part", "left")
time.sleep(600)
"""

UNMARKED = LEAVES.replace("start_new_session=True", "env={}")


class Host:
    """An agent's launchers, and the port of a cell."""

    def __init__(self, place: Path) -> None:
        self.place, self.root = place, place / "ranks"
        self.socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.endpoint = listen_far(self.socket, Reach(), new_keys(), beats=True)
        self.env = dict(os.environ)
        self.launchers = self.agent()

    def agent(self) -> Launchers:
        """Return what an agent has that is started now."""
        return Launchers("h1", self.root, self.env, lambda: None)

    def wanted(self, seal: str = "", gang: str = "g") -> StartRanks:
        """Return what the scheduler says."""
        seal = seal or seal_of(key_of(self.env), gang, str(self.place), self.endpoint)
        return StartRanks(gang, ("GPU-1",), str(self.place), self.endpoint, seal)

    async def begin(self) -> int:
        """Have a process started that leaves another behind; return the pid of that."""
        await until(lambda: self.socket.poll(0))
        peer, _ = self.socket.recv_multipart()
        program = msgspec.msgpack.encode(Program(LEAVES, {}, {}, (), (), ()))
        self.socket.send_multipart([peer, encode(Begin(0, 1, 1, "127.0.0.1", 2001, program))])
        await until((self.place / "left").exists)
        return int((self.place / "left").read_text())


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not what():  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(0.02)


def launchers() -> list[psutil.Process]:
    mine = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in mine if "replkernel.ranks.launcher" in each.cmdline()]


@pytest_asyncio.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path)
    yield made
    made.launchers.stop_all()
    await until(lambda: not made.launchers.any() and not any(made.root.glob("*")))
    made.socket.close()


async def test_a_killed_launchers_processes_are_ended(host: Host) -> None:
    assert host.launchers.start(host.wanted()) == ""
    left = await host.begin()
    (launcher,) = launchers()
    launcher.kill()
    await until(lambda: not host.launchers.any())
    await until(lambda: not start_time(left))
    await until(lambda: not any(host.root.iterdir()))


async def test_a_killed_launchers_processes_are_ended_also_without_their_mark(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.integration.test_rank_starting.LEAVES", UNMARKED)
    assert host.launchers.start(host.wanted()) == ""
    left = await host.begin()
    (launcher,) = launchers()
    launcher.kill()
    await until(lambda: not host.launchers.any() and not start_time(left))


async def test_an_agent_that_is_started_again_knows_its_launchers(host: Host) -> None:
    assert host.launchers.start(host.wanted()) == ""
    left = await host.begin()
    again = host.agent()
    assert again.gangs() == ("g",)
    assert again.start(host.wanted()) == "", "it is there already"
    assert len(launchers()) == 1
    again.stop_all()
    await until(lambda: not again.any() and not start_time(left))
    assert not host.agent().any()


@pytest.mark.parametrize("within_s", [0.0, 0.05])
async def test_the_launcher_of_one_cell_is_ended_and_no_other(host: Host, within_s: float) -> None:
    assert host.launchers.start(host.wanted()) == ""
    left = await host.begin()
    host.launchers.stop("h")
    host.launchers.stop("g", within_s)
    assert host.launchers.gangs() == ("g",)
    await until(lambda: not host.launchers.any() and not start_time(left))


@pytest.mark.parametrize("within_s", [0.0, 0.05])
async def test_all_launchers_of_a_job_are_ended_by_its_name_and_none_that_come_later(
    host: Host, within_s: float
) -> None:
    gangs = ("job.j.1.a", "job.j.2.b", "job.j.k.1.a", "job.jj.1.a", "g.1.a")
    for gang in gangs:
        assert host.launchers.start(host.wanted(gang=gang)) == ""
    host.launchers.stop("job.j", within_s, saves=False)
    assert host.launchers.start(host.wanted(gang="job.j.3.c")) == ""
    await until(lambda: len(host.launchers.gangs()) == 4)
    assert set(host.launchers.gangs()) == {*gangs[2:], "job.j.3.c"}


async def test_a_cell_that_was_stopped_may_be_started_again(host: Host) -> None:
    assert host.launchers.start(host.wanted()) == ""
    host.launchers.stop("g")
    assert host.launchers.start(host.wanted()) == ""
    assert host.launchers.gangs() == ("g", "g")


async def test_without_the_users_seal_nothing_is_started(host: Host) -> None:
    false = seal_of(b"k" * 32, "g", str(host.place), host.endpoint)
    assert "bears no seal of this user" in host.launchers.start(host.wanted(false))
    assert not host.launchers.any() and launchers() == []
    elsewhere = seal_of(key_of(host.env), "g", "/nowhere", host.endpoint)
    wanted = msgspec.structs.replace(host.wanted(elsewhere), directory="/nowhere")
    assert "has no directory /nowhere" in host.launchers.start(wanted)
