"""A job on cores steps aside: its priority, its place where memory runs out, and the watch on its memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from replkernel_server import service

from replkernel.cli.agent import run_agent
from replkernel.errors import AgentUnavailable
from replkernel.jobs import agent_watch
from replkernel.jobs.processes import command_with, environment
from replkernel.jobs.stepping_aside import GIB, MemoryWatch, WatchAside, proportional, resident
from replkernel.jobs.words import MEMORY, Order
from tests.support.live import eventually
from tests.unit.agent.test_job_supervisor import Watched

SAYS = """
import os, resource, subprocess, sys
said = "import os; score = open('/proc/self/oom_score_adj').read().strip(); "
said += "print(os.nice(0), os.sched_getscheduler(0), score)"
subprocess.run([sys.executable, "-c", said])
env = os.environ
print(resource.getrlimit(resource.RLIMIT_DATA)[0], env["OMP_NUM_THREADS"], env["CUDA_VISIBLE_DEVICES"])
"""
GROWS = """
import time
kept = bytearray(b"x") * (80 << 20)
time.sleep(600)
"""
FORKS = """
import os, time
kept = bytearray(b'x') * (64 << 20)
os.fork()
os.write(1, b"up\\n")
time.sleep(600)
"""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(agent_watch, "begin", lambda *_: None)
    made = Watched(tmp_path)
    yield made
    made.ends()


def log_of(watched: Watched) -> str:
    return (watched.place.directory / "job.log").read_text()


def on_cores(number: int, watched: Watched, program: str, memory_gb: float, cpus: int = 2) -> None:
    command = (sys.executable, "-c", program)
    watched.place.write(Order(number, "j", 1, (), command, str(watched.work), cpus=cpus, memory_gb=memory_gb))


def test_all_that_a_job_on_cores_starts_is_last_for_processors_and_first_to_go(watched: Watched) -> None:
    on_cores(1, watched, SAYS, 1.5)
    watched.turns_until(lambda: watched.state() == "done")
    first, second = log_of(watched).splitlines()
    assert first == f"19 {os.SCHED_IDLE} 1000"
    assert second.split() == [str(3 * GIB), "2"]


def test_who_takes_more_memory_than_it_may_is_ended_at_once_and_told_why(watched: Watched) -> None:
    on_cores(1, watched, GROWS, 0.06)
    watched.turns_until(lambda: watched.state() == "failed")
    said = watched.place.record().said
    assert re.fullmatch(
        r"it took \d+ MiB of memory and may have 61 MiB: submit it with a larger --memory", said
    )
    watched.turns_until(lambda: watched.place.number(MEMORY) == 0)


def test_who_stays_within_it_goes_on_and_the_agent_hears_how_much_it_has(watched: Watched) -> None:
    on_cores(1, watched, GROWS, 1.0)
    watched.turns_until(lambda: watched.place.number(MEMORY) >= 64 << 20)
    assert watched.state() == "running"


def test_the_watch_on_memory_gives_way_to_cells_and_its_supervisor_does_not(watched: Watched) -> None:
    on_cores(1, watched, GROWS, 1.0)
    watched.turns_until(lambda: watched.place.number(MEMORY) >= 64 << 20)
    nice = {
        thread.name: os.getpriority(os.PRIO_PROCESS, thread.native_id or 0)
        for thread in threading.enumerate()
        if thread.name == "memory watch" or thread is threading.main_thread()
    }
    assert nice.pop("memory watch") == 19
    assert list(nice.values()) == [os.getpriority(os.PRIO_PROCESS, 0)], "an agent that it starts has that"


def test_a_look_at_memory_that_fails_is_not_the_last_one() -> None:
    looks = list[int]()

    def fails_at_first() -> list[int]:
        looks.append(1)
        if len(looks) == 1:
            raise MemoryError
        return [os.getpid()]

    watch = WatchAside(MemoryWatch(0.0, fails_at_first), 0.001)
    try:
        assert eventually(lambda: watch.told or None, "a second look").startswith("it took")
    finally:
        watch.close()


def test_where_no_thread_can_be_started_the_supervisor_watches_memory_itself(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    on_cores(1, watched, GROWS, 0.06)
    watched.turns_until(lambda: watched.state() == "failed")
    assert "may have 61 MiB" in watched.place.record().said


def test_memory_that_processes_share_counts_once() -> None:
    started = subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert started.stdout is not None
        assert [started.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        (child,) = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        both = [started.pid, int(child)]
        assert sum(map(resident, both)) > 128 << 20 > sum(map(proportional, both)) > 64 << 20
        assert MemoryWatch(0.12, lambda: both).look(time.monotonic()) == ""
        assert "it took" in MemoryWatch(0.05, lambda: both).look(time.monotonic())
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()
    assert resident(started.pid) == proportional(started.pid) == 0


MAPS = """
import mmap, os, sys, time
file = open(sys.argv[1], "rb")
pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
read = sum(pages[at] for at in range(0, len(pages), 4096))
shared = mmap.mmap(-1, 32 << 20)
shared.write(b"x" * (32 << 20))
os.write(1, b"up\\n")
time.sleep(600)
"""


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Return a file of 96 MiB that lies on a disk: pages of one in /dev/shm are memory."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        file.write(b"x" * (96 << 20))
        file.flush()
        yield Path(file.name)


def test_pages_of_files_are_not_a_jobs_memory_and_shared_memory_is(on_disk: Path) -> None:
    command = [sys.executable, "-c", MAPS, str(on_disk)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert started.stdout is not None and started.stdout.readline() == b"up\n"
        assert 32 << 20 <= resident(started.pid) < 80 << 20
        assert 32 << 20 <= proportional(started.pid) < 80 << 20
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def test_a_program_is_told_its_cores_and_one_with_gpus_is_not() -> None:
    assert command_with(("run", "--jobs={cpus}", "torchrun"), 0, 3) == ["run", "--jobs=3", "torchrun"]
    with_gpus = environment({}, Order(1, "j", 1, ("GPU-1",), ("x",), "/w"), Path("/p"))
    assert command_with(("run", "{cpus}", "{gpus}"), 2) == ["run", "{cpus}", "2"]
    assert "OMP_NUM_THREADS" not in with_gpus and "REPLKERNEL_JOB_CPUS" not in with_gpus


def test_the_watch_takes_a_small_share_of_a_core_however_many_processes_there_are() -> None:
    spent, looks = 0.0, 0

    def members() -> list[int]:
        nonlocal spent, looks
        spent, looks = spent + 0.05, looks + 1
        return []

    watch = MemoryWatch(1.0, members, lambda: spent)
    for half_seconds in range(240):
        assert not watch.look(half_seconds / 2)
    assert 120.0 / 10.0 <= looks <= 120.0 / 5.0
    assert spent <= 0.01 * 120.0 + 0.05


def test_a_job_on_cores_becomes_neither_agent_nor_scheduler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPLKERNEL_JOB_CPUS", "2")
    with pytest.raises(AgentUnavailable, match="outside the job"):
        run_agent(None, "h1", None, None, {})
    assert service.main([]) == 1
    assert "start the scheduler outside the job" in capsys.readouterr().err
