"""What an agent does with the scheduler's orders for jobs, also where it cannot write them down."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from replkernel.jobs import keeping, processes, words
from replkernel.jobs.keeping import JobKeeping
from replkernel.jobs.words import JobPlace, Progress, Record, key_of, seal_of
from replkernel.leasing.wire import FromClient, HostUse, JobGone, JobSaid, StartJob, StopJob, UseWanted

COMMAND = ("train",)


@pytest.fixture(autouse=True)
def no_supervisors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have none started: the test writes what one would, and two would write over each other's records."""
    monkeypatch.setattr(processes, "start_supervisor", lambda *_: None)


class Told:
    """The way to a scheduler, which keeps what is said."""

    def __init__(self) -> None:
        self.all: list[FromClient] = []

    def send(self, message: FromClient) -> None:
        self.all.append(message)

    async def close(self) -> None: ...


class Agent:
    """The agent's part of jobs, without the loop that looks by itself."""

    def __init__(self, directory: Path) -> None:
        self.env = {**os.environ, "JUPYTER_DATA_DIR": str(directory / "data")}
        self.work, self.root = directory / "work", directory / "agent" / "jobs"
        self.work.mkdir(exist_ok=True)
        key_of(self.env)
        self.keeping = JobKeeping("h1", directory / "agent", self.env, lambda: None)
        self.told = Told()
        self.keeping._channel = self.told  # type: ignore[assignment]
        self.keeping._up = True

    def place(self, job: str = "j") -> JobPlace:
        return JobPlace(self.root / job)

    def starts(self, job: str = "j", attempt: int = 1, directory: str = "") -> None:
        where = directory or str(self.work)
        seal = seal_of(key_of(self.env), job, COMMAND, where)
        self.keeping._take(StartJob(job, attempt, ("GPU-1",), COMMAND, where, seal))

    def said(self, job: str = "j") -> list[JobSaid]:
        return [each for each in self.told.all if isinstance(each, JobSaid) and each.job == job]

    def program(self, job: str = "j") -> subprocess.Popen[bytes]:
        """Be the supervisor: start a program."""
        order = self.place(job).order()
        assert order is not None
        env = processes.environment({}, order, self.place(job).directory)
        self.place(job).write(Record(order.number, order.attempt, "running"))
        return subprocess.Popen(["/bin/sleep", "600"], env=env)

    def heard(self) -> list[str]:
        return [each.what for each in self.said()]


def with_agent(directory: Path, holds: Callable[[Agent], Coroutine[Any, Any, None]]) -> None:
    """Have an agent for a test."""

    async def run() -> None:
        agent = Agent(directory)
        try:
            await holds(agent)
        finally:
            await agent.keeping.close()

    asyncio.run(run())


def test_a_job_whose_directory_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    async def holds(agent: Agent) -> None:
        missing = tmp_path / "not" / "mounted"
        agent.starts(directory=str(missing))
        (said,) = agent.said()
        assert said.what == "failed" and str(missing) in said.said and "h1" in said.said
        assert not missing.exists() and agent.place().order() is None
        agent.starts()
        assert agent.place().order() is not None

    with_agent(tmp_path, holds)


@pytest.mark.parametrize("steps", range(6))
def test_keeping_ends_also_at_the_moment_at_which_news_come(tmp_path: Path, steps: int) -> None:
    async def run() -> set[asyncio.Task[None]]:
        agent = Agent(tmp_path)
        agent.keeping.start()
        await asyncio.sleep(0.05)  # It waits for news now.
        words.wake(agent.root / words.WAKE)
        for _ in range(steps):
            await asyncio.sleep(0)
        return (await asyncio.wait([asyncio.create_task(agent.keeping.close())], timeout=5))[0]

    assert asyncio.run(run())


def test_a_start_that_cannot_be_written_down_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def holds(agent: Agent) -> None:
        with monkeypatch.context() as full:
            full.setattr(words, "replace_own", no_room)
            agent.starts()
        (said,) = agent.said()
        assert said.what == "failed" and os.strerror(errno.ENOSPC) in said.said
        assert not agent.keeping.any()

    with_agent(tmp_path, holds)


def test_a_stop_that_cannot_be_written_down_is_kept_and_ends_the_job_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def holds(agent: Agent) -> None:
        agent.starts()
        program = agent.program()
        with monkeypatch.context() as full:
            full.setattr(words, "replace_own", no_room)
            agent.keeping._take(StopJob("j", 1, 3600.0, True))
            await agent.keeping._look()
            assert program.poll() is None and "stopped" not in agent.heard()
            agent.keeping._take(StopJob("j", 1, 0.0, False))
            await agent.keeping._look()
            assert await asyncio.to_thread(program.wait) == -9
            await agent.keeping._look()
        assert agent.heard()[-1] == "stopped"
        await agent.keeping._look()
        written = agent.place().order()
        assert written is not None and not written.runs, "with room again it is written down"

    with_agent(tmp_path, holds)


@pytest.mark.parametrize("end", ["stopped", "done", "failed"])
def test_an_end_that_comes_while_news_are_told_is_told_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: words.State
) -> None:
    async def holds(agent: Agent) -> None:
        agent.starts()
        agent.keeping._take(StopJob("j", 1, 60.0, True))
        place = agent.place()
        order = place.order()
        assert order is not None
        place.write(Record(order.number, 1, "stopping"))
        read = JobPlace.progress

        def reads_while_it_ends(read_in: JobPlace) -> Progress | None:
            place.write(Record(order.number, 1, end))
            return read(read_in)

        with monkeypatch.context() as ends:
            ends.setattr(JobPlace, "progress", reads_while_it_ends)
            await agent.keeping._look()
        await agent.keeping._look()
        assert agent.heard()[-1] == end
        assert not agent.keeping.runs_any()

    with_agent(tmp_path, holds)


def test_progress_is_told_once_a_second_and_the_last_one_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def holds(agent: Agent) -> None:
        agent.starts()
        agent.place().write(Record(1, 1, "running"))
        await agent.keeping._look()
        for epoch in range(1, 100):
            agent.place().write(Progress(epoch))
            await agent.keeping._look()
        assert {each.epoch for each in agent.said()} == {None}
        monkeypatch.setattr(agent.keeping, "_tell_at", {})
        await agent.keeping._look()
        assert agent.said()[-1].epoch == 99
        agent.place().write(Progress(100))
        agent.place().write(Record(1, 1, "done"))
        await agent.keeping._look()
        assert (agent.said()[-1].what, agent.said()[-1].epoch) == ("done", 100)

    with_agent(tmp_path, holds)


def test_directories_of_jobs_that_have_gone_elsewhere_do_not_heap_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def holds(agent: Agent) -> None:
        for number in range(6):
            name = f"j{number}"
            agent.starts(name)
            agent.place(name).write(Record(1, 1, "failed" if number == 0 else "stopped"))
            os.utime(agent.place(name).directory, (number, number))
            await agent.keeping._look()
        assert sorted(os.listdir(agent.root)) == ["j0", "j4", "j5", "wake"], (
            "the scheduler may not know of j0"
        )
        agent.keeping._take(JobGone("j0"))
        assert sorted(os.listdir(agent.root)) == ["j0", "j5", "wake"], "the oldest of all goes"

    monkeypatch.setattr(keeping, "KEPT_MAX", 2)
    with_agent(tmp_path, holds)


def test_an_agent_whose_file_system_has_no_fifos_starts_jobs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def holds(agent: Agent) -> None:
        assert sum("no FIFOs" in each.message for each in caplog.records) == 1
        agent.starts()
        assert agent.place().order() is not None and agent.said() == []

    monkeypatch.setattr(os, "mkfifo", no_room)
    with_agent(tmp_path, holds)


def test_an_agent_that_can_keep_no_jobs_refuses_them_and_goes_on(tmp_path: Path) -> None:
    async def holds(agent: Agent) -> None:
        agent.starts()
        assert agent.heard() == ["failed"]

    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "jobs").touch()
    with_agent(tmp_path, holds)


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_hosts_use_is_told_twice_once_it_is_asked_for_and_then_only_when_it_changes(
    tmp_path: Path,
) -> None:
    async def holds(agent: Agent) -> None:
        def samples(*used_gb: float) -> list[float]:
            before = len(agent.told.all)
            for each in used_gb:
                agent.keeping.uses(HostUse(1.0, each, 0.0, 8.0))
            told = agent.told.all[before:]
            assert all(isinstance(one, HostUse) and one.limit_gb == 8.0 for one in told)
            return [one.used_gb for one in told if isinstance(one, HostUse)]

        assert samples(1.0, 1.0) == []
        agent.keeping._take(UseWanted())
        assert agent.told.all == [HostUse(1.0, 1.0, 0.0, 8.0)]
        assert samples(1.0, 1.01, 1.0) == [1.0]
        assert samples(2.0, 2.0, 2.0, 3.0) == [2.0, 2.0, 3.0]

    with_agent(tmp_path, holds)
