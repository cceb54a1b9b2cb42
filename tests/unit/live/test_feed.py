"""Who listens is told everything, then changes; who does not read is not sent more than fits."""

from __future__ import annotations

import asyncio
from errno import EMFILE
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from replkernel_server.live import feed as driver
from replkernel_server.live.documents import Changes, Message, Snapshot
from replkernel_server.live.feed import LISTENERS_MAX, Feed
from replkernel_server.live.jobs import jobs_of
from replkernel_server.zmq_sockets import allow_sockets
from traitlets import TraitError
from zmq import ZMQError

from replkernel.jobs.answers import EndsIn, JobAnswer, Reshape
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
        monkeypatch.setattr(driver, "ask_jobs", lambda env: self.jobs)
        self.jobs: list[JobAnswer] | None = []
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


async def test_who_asks_while_everything_is_gathered_is_told_it_too(world: World) -> None:
    both = await asyncio.gather(world.feed.snapshot(), world.feed.snapshot())
    assert [[host.name for host in one.hosts] for one in both] == [["h1"], ["h1"]]
    assert world.asked == 1
    await world.feed.close()


async def test_who_asks_as_a_page_begins_to_listen_is_told_everything(world: World) -> None:
    world.feed.add(Listener())
    assert [host.name for host in (await world.feed.snapshot()).hosts] == ["h1"]
    await world.feed.close()


class SlowLine:
    """A kernel's that has not answered yet."""

    def __init__(self) -> None:
        self.looked_at = asyncio.Event()
        self.answered = False

    @property
    def waits(self) -> bool:
        self.looked_at.set()
        return not self.answered

    def close(self) -> None:
        pass


async def test_a_page_that_comes_while_everything_is_gathered_for_another_misses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, listener = SlowLine(), Listener()
    monkeypatch.setattr(world.feed, "_ask_kernels", lambda now: None)
    monkeypatch.setattr(world.feed, "_lines", {"k": line})
    asks = asyncio.create_task(world.feed.snapshot())
    await line.looked_at.wait()
    world.feed.add(listener)
    await world.turns()
    world.hosts = ("h1", "h2")
    world.feed._state.agents_told(StatusDocument(hosts=tuple(map(HostStatus, world.hosts))), ())
    line.answered = True
    assert len((await asks).hosts) == 2
    world.feed.turn()
    first, last = listener.told
    assert isinstance(last, Changes) and [host.name for host in last.hosts] == ["h2"]
    assert last.seq == first.seq + 1
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


class BrokenManager:
    """One whose start failed half-way: the server has no socket for it, and never noted its activity."""

    control_port = 1
    execution_state = "starting"
    session = Session(key=b"key")

    @property
    def last_activity(self) -> object:
        raise TraitError("expected a datetime, not the NoneType None")

    def connect_control(self) -> object:
        raise ZMQError(EMFILE)


async def test_a_kernel_that_cannot_be_asked_does_not_hide_what_is_new_elsewhere(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.feed, "_served", lambda: {"broken": BrokenManager()})
    listener = Listener()
    world.feed.add(listener)
    await world.turns()
    world.hosts = ("h1", "h2")
    await world.turns()
    last = listener.told[-1]
    assert isinstance(last, Changes) and [host.name for host in last.hosts] == ["h2"]
    await world.feed.close()


def test_a_server_has_sockets_for_more_than_two_thousand_notebooks() -> None:
    kernels = AsyncMappingKernelManager()
    allow_sockets(kernels)
    assert kernels.context.get(zmq.MAX_SOCKETS) >= 7 * 2_000


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


def answered(**said: Any) -> JobAnswer:
    given: dict[str, Any] = {
        "job": "train-1", "user": "ann", "state": "running", "host": "h1", "gpus": ("g",), "shapes": [1, 2],
        "command": ["x"], "directory": "/w", "starts": 1, "epoch": 2.0, "epochs": 8.0, "loss": 0.123456,
        "ends_in_s": 60.4, "gpu_hours": 0.25, "said": "", "ends_in": [EndsIn(1, 60.4), EndsIn(2, 33.0)],
        "reshapes": [Reshape(30.0, 1, "GPUs were idle")],
    }  # fmt: skip
    return JobAnswer(**given | said)


async def test_jobs_are_told_and_again_only_when_they_change(world: World) -> None:
    listener = Listener()
    world.feed.add(listener)
    world.jobs = [answered()]
    await world.turns()
    first = listener.told[0]
    assert isinstance(first, Snapshot)
    (job,) = first.jobs
    assert (job.gpus, job.loss, job.ends_in_s, job.yours) == (1, 0.1235, 60, True)
    assert [(end.gpus, end.seconds) for end in job.ends_in] == [(1, 60), (2, 33)]
    world.jobs = [answered(reshapes=[Reshape(31.5, 1, "GPUs were idle")])]
    await world.turns()
    assert len(listener.told) == 1, "it is the change that was told"
    world.jobs = None
    await world.turns()
    assert len(listener.told) == 1, "nobody tells: what is known stays"
    world.jobs = [answered(state="done", gpus=(), reshapes=[])]
    await world.turns()
    last = listener.told[-1]
    assert isinstance(last, Changes) and last.jobs is not None and last.jobs[0].state == "done"
    await world.feed.close()


def test_of_a_hub_another_users_job_is_not_ones_own() -> None:
    jobs = [answered(), answered(job="train-2", user="bob")]
    told = jobs_of(jobs, [], 1000.0, {"JUPYTERHUB_USER": "ann"})
    assert [(job.job, job.yours) for job in told] == [("train-1", True), ("train-2", False)]
    assert told[0].reshapes[0].at == 970
