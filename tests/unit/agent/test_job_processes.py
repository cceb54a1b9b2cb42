"""Which processes are a job's: those that hide from it too, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.death import start_time
from replkernel.agent.io.start import outside_jobs
from replkernel.jobs import processes
from replkernel.jobs.processes import First, first_of, members
from replkernel.jobs.words import Order, Record, checkpoint_of

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
LEAVES = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, '-c', {SLEEPS!r}], start_new_session=True, env={{}})
time.sleep(600)
"""
Starting = Callable[..., "tuple[subprocess.Popen[bytes], Path]"]


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Starting]:
    """Start a job's program; it is up when this returns."""
    begun: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(*command: str) -> tuple[subprocess.Popen[bytes], Path]:
        place = tmp_path / "place"
        place.mkdir()
        order = Order(1, "j", 1, ("GPU-1",), command, str(tmp_path))
        reads, writes = os.pipe()
        begun.append((processes.start(order, os.environ, place, writes), place))
        os.close(writes)
        assert os.read(reads, 2) == b"up"
        os.close(reads)
        return begun[-1]

    yield start
    for program, place in begun:
        for pid in members(place, First(program.pid, start_time(program.pid))):
            os.kill(pid, 9)
        program.wait()


def test_a_program_that_has_put_its_environment_away_is_the_job_s(starting: Starting) -> None:
    program, place = starting("/usr/bin/env", "-i", sys.executable, "-c", SLEEPS)
    assert members(place) == [], "it cannot be found by its environment"
    assert members(place, First(program.pid, start_time(program.pid))) == [program.pid]


def test_a_jobs_grandchildren_are_the_jobs_in_whatever_session(starting: Starting) -> None:
    program, place = starting(sys.executable, "-c", LEAVES)
    first, second = members(place)
    assert first == program.pid and os.getsid(second) == second


def test_in_a_directory_of_the_team_a_job_s_checkpoint_is_its_user_s_alone(
    starting: Starting, tmp_path: Path
) -> None:
    theirs = tmp_path / "replkernel-jobs"
    theirs.mkdir()
    theirs.chmod(0o777)
    program, _ = starting(sys.executable, "-c", SLEEPS)
    told = Path(f"/proc/{program.pid}/environ").read_bytes().split(b"\0")
    own = tmp_path / f"replkernel-jobs-{os.geteuid()}" / "j"
    assert f"REPLKERNEL_JOB_CHECKPOINT={own / 'checkpoint'}".encode() in told
    assert own.is_dir() and own.parent.stat().st_mode & 0o777 == 0o700 and not list(theirs.iterdir())
    theirs.rmdir()
    assert checkpoint_of(str(tmp_path), "j") == own / "checkpoint", "it stays where it is"


def test_a_pid_that_is_another_s_by_now_is_not_the_job_s(starting: Starting) -> None:
    program, place = starting("/usr/bin/env", "-i", sys.executable, "-c", SLEEPS)
    started = start_time(program.pid)
    assert members(place, First(program.pid, started - 1)) == []
    told = Record(1, 1, "running", "", program.pid, started, boot=processes.boot())
    assert first_of(told) == First(program.pid, started)
    before = Record(1, 1, "running", "", program.pid, started, boot="the life of the machine before this")
    assert first_of(before) == First()


def test_setproctitle_is_asked_to_leave_the_environment() -> None:
    order = Order(1, "j", 1, ("GPU-1",), ("x",), "/w")
    assert processes.environment({}, order, Path("/p"))["SPT_NOENV"] == "1"


def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    order = Order(1, "j", 1, ("GPU-1",), ("true",), str(tmp_path / "not" / "mounted"))
    with pytest.raises(FileNotFoundError):
        processes.start(order, os.environ, tmp_path, 1)
    assert os.listdir(tmp_path) == []


def test_an_agent_that_a_process_of_a_job_or_of_a_cell_on_several_hosts_starts_does_not_end_with_it() -> None:
    env = {"REPLKERNEL_JOB": "j", "REPLKERNEL_JOB_AT": "h j", "REPLKERNEL_RANKS_DIR": "/x", "PATH": "/bin"}
    assert outside_jobs(env) == {"PATH": "/bin"}
