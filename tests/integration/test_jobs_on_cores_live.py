"""Jobs without GPUs, live: a real scheduler, a real agent that measures its host, a real training.

Whatever is killed in the middle, the training ends with the loss of one that nobody interrupted, and nothing
runs twice. One that takes more memory than it may is ended and says so.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import test_jobs_live
from tests.integration.test_jobs_live import EPOCHS, World, _supervisor, until
from tests.support import training
from tests.support.breadth import each_nth
from tests.support.scheduler_service import Service

GROWS = "import time\nkept = []\nwhile True: kept.append(bytearray(b'x') * (4 << 20)); time.sleep(0.1)"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a machine on which jobs are waited for: of cores that others use they get next to nothing."""
    monkeypatch.setattr(test_jobs_live, "PATIENCE_S", 300.0)
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the last line of a training that nobody interrupts."""
    done = subprocess.run(
        [sys.executable, training.__file__, str(EPOCHS), "0"],
        cwd=tmp_path_factory.mktemp("alone"), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip().splitlines()[-1]


def test_a_job_on_cores_runs_at_the_lowest_priority_without_gpus_and_is_accounted(
    world: World, loss: str
) -> None:
    name = world.run("--cpus", "1", "--memory", "1", gate="go")
    world.trains(name, 3)
    ((_, gpus, worker),) = world.begun(name)
    assert gpus == 0 and world.leases() == []
    assert os.getpriority(os.PRIO_PROCESS, worker) == 19
    assert os.sched_getscheduler(worker) == os.SCHED_IDLE
    assert " 1 core " in world.listed(name)
    assert re.search(r"cores +1\nmemory +1 GiB at most", world.said("show", name))
    (world.directory / "go").touch()
    over = world.ended(name)
    assert (over["state"], over["gpu_hours"]) == ("done", 0.0) and over["cpu_hours"] > 0.0
    assert world.said("logs", name).strip().splitlines()[-1] == loss


def test_one_that_takes_more_memory_than_it_may_is_ended_and_says_so(world: World) -> None:
    told = world.said("run", "--cpus", "1", "--memory", "128MiB", "--", sys.executable, "-c", GROWS)
    name = re.findall(r"Job (\S+) is submitted", told)[0]
    over = world.ended(name)
    assert over["state"] == "failed"
    assert re.fullmatch(r"it took \d+ MiB of memory and may have 128 MiB: .*", over["said"])


def test_one_that_no_host_can_take_waits_and_says_why_until_it_is_stopped(world: World) -> None:
    name = world.run("--cpus", "1024")
    why = until(lambda: "1024 cores" in world.state(name).get("said", "") and world.state(name)["said"])
    assert why.startswith("it wants 1024 cores and 4 GiB; beside notebooks, h1 has ")
    world.said("stop", name)
    assert world.ended(name)["state"] == "stopped"


@pytest.mark.parametrize("who", each_nth(["supervisor", "agent", "worker", "scheduler"], 2))
def test_whoever_is_killed_it_goes_on_from_its_checkpoint(world: World, loss: str, who: str) -> None:
    name = world.run("--cpus", "1", "--memory", "1", gate="go")
    world.trains(name, 12)
    (_, _, worker), *_ = world.begun(name)
    if who == "worker":
        os.kill(worker, signal.SIGKILL)
    elif who == "agent":
        world.agent.kill()
        world.agent.wait()
    elif who == "scheduler":
        world.service.kill()
        world.service = Service()
    else:
        os.kill(_supervisor(world.place(name)), signal.SIGKILL)
    (world.directory / "go").touch()
    assert world.ended(name)["state"] == "done"
    assert world.log(name).strip().splitlines()[-1] == loss
    assert "TWICE" not in world.log(name)
    starts = world.begun(name)
    assert len(starts) == (2 if who in ("worker", "supervisor") else 1)
    assert all(epoch >= 10 for epoch, _, _ in starts[1:])
