"""A job on two hosts by torchrun: one training, whatever of it is killed; off both when a cell wants one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_moves import Agents
from tests.e2e.test_several_hosts import launchers, leased
from tests.support import rank_training
from tests.support.live import eventually, kernel
from tests.support.needs import need
from tests.support.scheduler_service import Service, serving

need("torch")
TORCHRUN = Path(sys.executable).with_name("torchrun")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow,
    pytest.mark.one_host,
    pytest.mark.skipif(not TORCHRUN.exists(), reason="torchrun is not installed beside this Python"),
]

EPOCHS = 120
PACE_S = "0.1"
EVERY = 10
TOLERANCE = 1e-4


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


@pytest.fixture
def agents(service: Service) -> Iterator[Agents]:
    made = Agents(service)
    for host in ("h1", "h2"):
        made.run(host, 2)
    yield made
    made.end()


class Job:
    """A training on two hosts, with two processes on each."""

    def __init__(self, work: Path, service: Service, shapes: str = "4") -> None:
        self.service = service
        work.mkdir()
        shutil.copy(rank_training.__file__, work / "training.py")
        training = [str(TORCHRUN), "training.py", str(EPOCHS), PACE_S, str(EVERY)]
        command = [sys.executable, "-m", "replkernel.cli", "job", "run", "--gpus", shapes, "--hosts", "2"]
        told = subprocess.run(
            [*command, "--", *training], cwd=work, capture_output=True, text=True, timeout=60, check=True
        ).stdout
        found = re.search(r"Job (\S+) is", told)
        assert found is not None
        self.name = found[1]

    @property
    def place(self) -> Path:
        """The job's directory on its first host."""
        return Path(os.environ["JUPYTER_DATA_DIR"], "replkernel/agents/h1/jobs", self.name)

    def written(self) -> str:
        log = self.place / "job.log"
        return log.read_text() if log.exists() else ""

    def told(self) -> dict[str, object]:
        return self.service.rest.get(f"jobs/{self.name}")[1]  # type: ignore[no-any-return]

    def starts(self) -> list[int]:
        """Return the epochs from which it went on, each time by four ranks."""
        found = re.findall(r"BEGINS epoch=(\d+) ranks=(\d+)", self.written())
        assert {ranks for _, ranks in found} <= {"4"}
        return [int(epoch) for epoch, _ in found]

    def trains_on(self, starts: int) -> None:
        """Wait until it has been started so often, and has saved again since."""
        eventually(lambda: len(self.starts()) >= starts, f"start {starts}", within_s=90.0)
        assert len(self.starts()) == starts
        at = f"EPOCH {self.starts()[-1] + EVERY + 2}\n"
        eventually(lambda: at in self.written().rpartition("BEGINS")[2], at, within_s=60.0)

    def is_done_as_if_alone(self, work: Path) -> None:
        eventually(lambda: self.told()["state"] == "done", "that it is done", within_s=120.0)
        alone = [str(TORCHRUN), "--nproc-per-node=1", "training.py", str(EPOCHS), "0"]
        work.mkdir()
        shutil.copy(rank_training.__file__, work / "training.py")
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        said = subprocess.run(alone, cwd=work, env=env, capture_output=True, text=True, check=True).stdout
        own, others = losses(self.written()), losses(said)
        assert own.keys() == others.keys() == set(range(EPOCHS))
        worst = max(abs(own[epoch] - others[epoch]) for epoch in own)
        assert worst < TOLERANCE, "two ranks on each of two hosts learn what one does, in each epoch"
        assert re.findall(r"LOSS", self.written()) == ["LOSS"]


def losses(said: str) -> dict[int, float]:
    """Return the loss of each epoch, as it was told last."""
    return {int(epoch): float(loss) for epoch, loss in re.findall(r"AT (\d+) ([\d.]+)", said)}


def supervisor_of(job: Job) -> psutil.Process:
    return next(
        process
        for process in psutil.process_iter(["cmdline"])
        if {"replkernel.jobs.supervisor", str(job.place)} <= set(process.info["cmdline"] or ())
    )


def test_a_host_that_dies_ends_the_others_and_the_job_goes_on_with_another_one(
    service: Service, agents: Agents, tmp_path: Path
) -> None:
    job = Job(tmp_path / "work", service)
    job.trains_on(1)
    assert set(re.findall(r"\n(\[h2\] )?RANK (\d) begins", job.written())) == {
        ("", "1"),
        ("[h2] ", "2"),
        ("[h2] ", "3"),
    }, "a host's lines bear its name"
    assert (job.told()["hosts"], job.told()["on_hosts"]) == (2, ["h1", "h2"])
    assert leased(service) == 4
    victim = launchers()[str(agents.processes["h2"].pid)]
    for process in (psutil.Process(agents.processes["h2"].pid), *victim.children(recursive=True), victim):
        process.kill()
    agents.run("h3", 2)
    job.trains_on(2)
    assert job.starts()[1] >= EVERY, "it went on from its checkpoint"
    assert job.told()["on_hosts"] == ["h1", "h3"]
    job.is_done_as_if_alone(tmp_path / "alone")
    eventually(lambda: leased(service) == 0, "that all GPUs are back")
    eventually(lambda: not launchers(), "that nothing is left on the hosts")


def test_whatever_of_it_is_killed_it_goes_on_from_its_checkpoint_and_nothing_runs_twice(
    service: Service, agents: Agents, tmp_path: Path
) -> None:
    job = Job(tmp_path / "work", service)
    job.trains_on(1)
    supervisor_of(job).kill()
    job.trains_on(2)
    launchers()[str(agents.processes["h2"].pid)].kill()
    job.trains_on(3)
    os.kill(agents.processes["h1"].pid, signal.SIGKILL)
    agents.processes["h1"].wait()
    agents.run("h1", 2)
    service.kill()
    again = job.service = Service("--port", service.url.rpartition(":")[2])
    try:
        job.is_done_as_if_alone(tmp_path / "alone")
        eventually(lambda: leased(again) == 0, "that all GPUs are back")
    finally:
        again.kill()
    assert len(job.starts()) == 3, "neither agent nor scheduler are missed"
    assert sorted(job.starts()) == job.starts()
    assert not launchers()


def test_a_job_leaves_both_hosts_for_a_cell_on_one_and_comes_back(
    service: Service, agents: Agents, tmp_path: Path
) -> None:
    with kernel(tmp_path, REPLKERNEL_HOSTS="h1,h2", REPLKERNEL_HOST_LOST_S="3") as live:
        assert live.value("print(1)") == "1"
        job = Job(tmp_path / "work", service)
        job.trains_on(1)
        ran = live.run("%%gpu 2\nprint('mine')")
        assert ran.out == "mine\n", ran.error
        print(f"the cell waited {ran.said['queued_s']:.2f} s")
        live.value("%gpu release")
        job.trains_on(2)
    saved_at = job.starts()[1]
    assert saved_at % EVERY or saved_at > EVERY, "it saved when it was asked to"
    job.is_done_as_if_alone(tmp_path / "alone")
