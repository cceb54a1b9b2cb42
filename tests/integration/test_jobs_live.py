"""Jobs beside notebooks, live: a real scheduler, a real agent with pretended GPUs, a real training.

Whatever is killed in the middle, the training ends with the loss of one that nobody interrupted, nothing runs
twice, and no lease is left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.agent.io.lookup import stop_agent
from replkernel.agent.io.start import is_stopped
from replkernel.jobs.words import JobPlace
from replkernel.leasing.finding import find_scheduler
from tests.support import training
from tests.support.breadth import each_nth
from tests.support.scheduler_service import Service

HOST = "h1"
CLI = [sys.executable, "-m", "replkernel.cli"]
EPOCHS = 60
PATIENCE_S = 60.0
OVER = ("done", "failed", "stopped")


def until(holds: Callable[[], Any], what: str = "") -> Any:
    """Wait until it holds, and return what it returned."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, what or "it did not come about"
        time.sleep(0.05)
    return found


class World:
    """One machine: a scheduler, an agent with two pretended GPUs, a directory with a training."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copy(training.__file__, directory / "training.py")
        self.service = Service()
        self.agent = self._agent()
        until(lambda: any(host["gpus"] for host in self.service.rest.get("status")[1]["hosts"]))

    def _agent(self) -> subprocess.Popen[bytes]:
        command = [*CLI, "agent", "--name", HOST, "--fake-gpus", "2"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def said(self, *words: str) -> str:
        done = subprocess.run(
            [*CLI, "job", *words], cwd=self.directory, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: str, pace_s: float = 0.1, gate: str = "") -> str:
        """Submit a training, whose last epoch begins when there is a file `gate`, if one is named."""
        command = [sys.executable, "training.py", str(EPOCHS), str(pace_s), *([gate] if gate else [])]
        told = self.said("run", *words, "--", *command)
        found = re.search(r"Job (\S+) is submitted", told)
        assert found is not None
        return found[1]

    def job(self, name: str) -> dict[str, Any]:
        return json.loads(self.said("show", name, "--json"))  # type: ignore[no-any-return]

    def listed(self, name: str) -> str:
        """Return a job's line, nothing while its scheduler does not answer."""
        done = subprocess.run([*CLI, "job", "list"], capture_output=True, text=True, timeout=60, check=False)
        return next((line for line in done.stdout.splitlines() if line.startswith(name)), "")

    def state(self, name: str) -> dict[str, Any]:
        """Ask the scheduler itself, which may be away."""
        try:
            _, told = self.service.rest.get(f"jobs/{name}")
        except OSError:
            return {}
        return told or {}

    def place(self, name: str) -> Path:
        return Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "agents" / HOST / "jobs" / name

    def log(self, name: str) -> str:
        try:
            return (self.place(name) / "job.log").read_text()
        except OSError:
            return ""

    def begun(self, name: str) -> list[tuple[int, int, int]]:
        """Return epoch, GPUs and process of each start."""
        found = re.findall(r"BEGINS epoch=(\d+) gpus=(\d+) pid=(\d+)", self.log(name))
        return [(int(epoch), int(gpus), int(pid)) for epoch, gpus, pid in found]

    def trains(self, name: str, epoch: float) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            found = self.state(name)
            return found if (found.get("epoch") or 0) >= epoch and found["state"] == "running" else None

        return until(there, f"{name} does not reach epoch {epoch}: {self.log(name)}")  # type: ignore[no-any-return]

    def ended(self, name: str) -> dict[str, Any]:
        return until(  # type: ignore[no-any-return]
            lambda: found if (found := self.state(name)).get("state") in OVER else None, self.log(name)
        )

    def leases(self) -> list[Any]:
        return self.service.rest.get("status")[1]["leases"]  # type: ignore[no-any-return]

    def close(self) -> None:
        """End all that there is, whatever a test has left running."""
        try:
            jobs = json.loads(self.said("list", "--json"))["jobs"]
            for name in [told["job"] for told in jobs if told["state"] not in OVER]:
                self.said("stop", name)
                until(lambda name=name: self.job(name)["state"] in OVER)
        finally:  # What stays open otherwise fails tests that come long after this one.
            stop_agent(HOST, os.environ)
            self.agent.terminate()
            self.agent.wait()
            self.service.kill()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
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


def test_a_job_leaves_gpus_that_a_cell_wants_and_ends_as_if_it_had_not(world: World, loss: str) -> None:
    name = world.run("--gpus", "1,2", "--epochs", str(EPOCHS))
    assert len(world.trains(name, 3)["gpus"]) == 2
    wish = {"request": "cell", "kernel_id": "notebook", "gpus": 1, "ttl_s": 60.0}
    status, _ = world.service.rest.call("POST", "leases", wish)
    assert status == 202
    granted = until(lambda: world.service.rest.call("POST", "leases", wish)[0] == 201)
    assert granted
    shrunk = world.trains(name, 5)
    assert len(shrunk["gpus"]) == 1
    reshapes = [(change["gpus"], change["why"]) for change in shrunk["reshapes"]]
    assert reshapes == [(2, "GPUs were idle"), (1, "a notebook wanted its GPUs")]
    assert "1 GPU, because a notebook wanted its GPUs" in world.said("show", name)
    lease = world.service.rest.call("POST", "leases", wish)[1]["lease"]
    assert set(lease["gpus"]).isdisjoint(shrunk["gpus"])
    world.service.rest.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")
    assert world.ended(name)["state"] == "done"
    (_, first, _), (saved, second, _) = world.begun(name)
    assert (first, second) == (2, 1) and saved >= 3
    accounts = [sys.executable, "-m", "replkernel.cli", "accounting", "--by"]
    told = subprocess.run([*accounts, "job"], capture_output=True, text=True, timeout=60, check=True).stdout
    (row,) = [line for line in told.splitlines() if line.startswith(name)]
    assert " done " in row and float(row.split()[-1]) > 0
    told = subprocess.run([*accounts, "user"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "JOB_GPU_HOURS" in told
    assert world.log(name).strip().splitlines()[-1] == loss
    assert world.said("logs", name).strip().splitlines()[-1] == loss
    assert world.leases() == []


@pytest.mark.slow
def test_a_cell_that_wants_all_gpus_has_them_and_the_job_comes_back(world: World, loss: str) -> None:
    name = world.run("--gpus", "1,2")
    world.trains(name, 3)
    wish = {"request": "cell", "kernel_id": "notebook", "gpus": 2, "ttl_s": 60.0}
    until(lambda: world.service.rest.call("POST", "leases", wish)[0] == 201)
    assert world.state(name)["state"] == "waiting"
    lease = world.service.rest.call("POST", "leases", wish)[1]["lease"]
    world.service.rest.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")
    assert world.ended(name)["state"] == "done"
    assert world.log(name).strip().splitlines()[-1] == loss


@pytest.mark.parametrize("who", each_nth(["agent", "worker", "scheduler", "supervisor"], 2))
def test_whoever_is_killed_the_job_goes_on_from_its_checkpoint(world: World, loss: str, who: str) -> None:
    name = world.run("--gpus", "1,2", gate="go")
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
    assert world.leases() == []


def test_a_job_without_a_scheduler_goes_on_and_has_one_started(world: World, loss: str) -> None:
    name = world.run("--gpus", "2", pace_s=0.3)
    world.trains(name, 3)
    world.service.kill()
    until(lambda: loss in world.log(name))
    until(lambda: find_scheduler(os.environ)[0], "no scheduler was started")
    until(lambda: "done" in world.listed(name))
    assert len(world.begun(name)) == 1


@pytest.mark.slow
def test_who_asks_for_jobs_while_there_is_no_scheduler_has_one_started(world: World) -> None:
    name = world.run(pace_s=0.5)
    world.trains(name, 2)
    world.service.kill()
    assert name in world.said("list"), "it trains all the same"
    assert "being stopped" in world.said("stop", name)
    until(lambda: world.job(name)["state"] == "stopped")


def test_a_job_is_held_goes_on_and_is_stopped(world: World) -> None:
    name = world.run(pace_s=0.5)
    world.trains(name, 2)
    world.said("hold", name)
    until(lambda: world.state(name)["state"] == "held")
    assert world.leases() == []
    world.said("resume", name)
    until(lambda: len(world.begun(name)) == 2 and world.state(name)["state"] == "running")
    assert world.begun(name)[1][0] >= 2
    world.said("stop", name)
    assert world.ended(name)["state"] == "stopped"
    assert name in world.said("list")
    assert world.leases() == []


def test_an_agent_that_is_stopped_has_its_jobs_save_and_leave_first(world: World, loss: str) -> None:
    name = world.run("--gpus", "2", pace_s=0.3)
    world.trains(name, 3)
    ((_, _, worker),) = world.begun(name)
    assert stop_agent(HOST, os.environ)
    assert JobPlace(world.place(name)).record().state == "stopped"
    assert not Path(f"/proc/{worker}").exists()
    world.agent.wait()
    assert is_stopped(HOST, os.environ), "a supervisor would start it again"
    world.agent = world._agent()
    assert world.ended(name)["state"] == "done"
    assert world.log(name).strip().splitlines()[-1] == loss
    _, (saved, _, _) = world.begun(name)
    assert saved >= 3
    assert not is_stopped(HOST, os.environ)


def test_a_program_that_fails_is_tried_again_and_then_given_up(world: World) -> None:
    told = world.said("run", "--", sys.executable, "-c", "print('no'); raise SystemExit(7)")
    name = re.findall(r"Job (\S+) is submitted", told)[0]
    until(lambda: world.log(name).count("no") >= 2)
    world.said("stop", name)
    assert world.ended(name)["state"] == "stopped"


def test_a_command_that_its_user_has_not_sealed_does_not_run(world: World) -> None:
    command, where = [sys.executable, "-c", "open('evil', 'w')"], str(world.directory)
    body = {"job": "evil", "command": command, "directory": where, "seal": "0" * 64, "gpus": [1]}
    assert world.service.rest.call("POST", "jobs", body)[0] == 201
    over = world.ended("evil")
    assert over["state"] == "failed" and "no seal" in over["said"]
    assert not (world.directory / "evil").exists()


def _supervisor(place: Path) -> int:
    for pid in os.listdir("/proc"):
        if pid.isdecimal():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"replkernel.jobs.supervisor" in words and str(place).encode() in words:
                return int(pid)
    raise AssertionError("it has no supervisor")
