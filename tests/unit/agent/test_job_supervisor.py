"""The supervisor of a job: what it asks of a program, and what it does when it cannot write that down."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.agent.io import start as agent_start
from replkernel.agent.io.death import start_time
from replkernel.hosts.places import agent_place
from replkernel.jobs import agent_watch, life, processes, words
from replkernel.jobs.supervisor import Supervisor
from replkernel.jobs.words import ASKED, LISTENS, SAVED, WAKE, JobPlace, Order, Progress

PATIENCE_S = 30.0
SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")


class Watched:
    """A supervisor that a test steps, with its job's directory; the test is the program's other half."""

    def __init__(self, directory: Path) -> None:
        self.work = directory / "work"
        self.work.mkdir()
        self.place = JobPlace(directory / "jobs" / "j")
        self.place.make()
        self.supervisor: Supervisor | None = None

    def order(self, number: int, attempt: int = 1, *, command: tuple[str, ...] = SLEEPS, **more: Any) -> None:
        self.place.write(Order(number, "j", attempt, ("GPU-1",), command, str(self.work), **more))

    def turns_until(self, holds: Callable[[], Any]) -> Any:
        if self.supervisor is None:
            self.supervisor = Supervisor(self.place, "h1")
        deadline = time.monotonic() + PATIENCE_S
        while not (self.supervisor.turn() and False) and not (found := holds()):
            assert time.monotonic() < deadline, self.place.record()
            time.sleep(0.02)
        return found

    def state(self) -> str:
        return self.place.record().state

    def ends(self) -> None:
        self.order(1000, runs=False, saves=False)
        self.turns_until(lambda: self.state() in ("stopped", "done", "failed"))
        assert self.supervisor is not None
        self.supervisor.close()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(agent_watch, "begin", lambda *_: None)
    made = Watched(tmp_path)
    yield made
    made.ends()


def test_who_has_saved_for_an_earlier_question_is_told_to_end_at_once(watched: Watched) -> None:
    watched.order(1)
    watched.turns_until(lambda: watched.state() == "running")
    watched.place.set_number(LISTENS, 1)
    watched.order(2, 2)
    watched.turns_until(lambda: watched.place.number(ASKED) == 2)
    watched.order(3, 2, runs=False, within_s=3600.0)
    watched.turns_until(lambda: watched.place.record().number == 2)
    watched.place.set_number(SAVED, 2)
    watched.turns_until(lambda: watched.state() == "stopped")


def test_who_follows_a_supervisor_that_was_killed_ends_a_program_that_hides_before_it_starts_one(
    watched: Watched,
) -> None:
    watched.order(1, command=("/usr/bin/env", "-i", *SLEEPS))
    watched.turns_until(lambda: watched.state() == "running")
    assert watched.supervisor is not None
    killed, watched.supervisor = watched.supervisor, None
    killed.close()
    before = watched.place.record().pid
    watched.turns_until(lambda: watched.place.record().pid != before and watched.state() == "running")
    assert not start_time(before)
    assert killed._program is not None
    killed._program.wait()


HIDES = """
import os, signal, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
code = deaf + "; open('hidden', 'w'); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
while not os.path.exists("hidden"):
    time.sleep(0.01)
with open("part", "w") as file:
    file.write(str(child.pid))
os.rename("part", "child")
time.sleep(600)
"""


def test_a_process_that_hides_and_does_not_end_when_it_is_told_to_is_killed_though_its_parent_ended(
    watched: Watched,
) -> None:
    watched.order(1, command=("/usr/bin/env", "-i", sys.executable, "-c", HIDES))
    watched.turns_until((watched.work / "child").exists)
    child = int((watched.work / "child").read_text())
    watched.order(2, runs=False, within_s=1.0)
    try:
        watched.turns_until(lambda: watched.state() == "stopped")
        assert not start_time(child), "it is no child of anybody's, and bears no mark"
    finally:
        if start_time(child):
            os.kill(child, signal.SIGKILL)


def test_a_start_has_nothing_of_the_progress_before_it(watched: Watched) -> None:
    watched.place.write(Progress(41.0))
    watched.order(1)
    watched.turns_until(lambda: watched.state() == "running")
    assert watched.place.progress() is None


def test_a_supervisor_does_without_a_fifo(watched: Watched) -> None:
    (watched.place.directory / WAKE).unlink()
    watched.order(1)
    watched.turns_until(lambda: watched.state() == "running")
    assert watched.supervisor is not None
    watched.supervisor._wait()
    watched.order(2, runs=False, saves=False)
    watched.turns_until(lambda: watched.state() == "stopped")


def test_an_agent_that_somebody_has_stopped_is_not_started_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(agent_watch, "begin", lambda host, _: begun.append(host))
    monkeypatch.setattr(agent_watch, "LOOK_S", 0.0)
    watched.order(1)
    agent = Path(agent_place("h1", os.environ))
    agent.mkdir(parents=True, exist_ok=True)
    mark = agent / agent_start.STOPPED
    mark.touch()
    watched.turns_until(lambda: watched.state() == "running")
    assert begun == []
    mark.unlink()
    watched.turns_until(lambda: begun)


def test_a_supervisor_whose_disk_is_full_goes_on_and_says_so_later(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.order(1)
    watched.turns_until(lambda: watched.state() == "running")
    watched.place.set_number(LISTENS, 1)
    watched.order(2, runs=False, within_s=3600.0)
    program = watched.place.record().pid
    with monkeypatch.context() as full:
        full.setattr(words, "replace_own", no_room)
        for _ in range(3):
            watched.turns_until(lambda: True)
        assert watched.state() == "running" and watched.place.number(ASKED) == 0
    watched.turns_until(lambda: watched.place.number(ASKED) == 2)
    assert watched.state() == "stopping" and start_time(program)
    with monkeypatch.context() as full:
        full.setattr(words, "replace_own", no_room)
        os.kill(program, 9)
        watched.turns_until(lambda: not start_time(program))
    watched.turns_until(lambda: watched.state() == "stopped")


def test_a_program_that_cannot_be_started_on_a_full_disk_is_tried_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "PAUSE_S_MIN", 0.0)
    watched.order(1)
    with monkeypatch.context() as full:
        full.setattr(words, "replace_own", no_room)
        full.setattr(processes, "start", no_room)
        watched.turns_until(lambda: True)
    watched.turns_until(lambda: watched.state() == "running")


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
