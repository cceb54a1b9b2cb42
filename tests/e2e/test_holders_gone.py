"""The dead hold no GPUs, and holders give back at once: notebooks on one scheduler, agent and pretended GPU.

Each scene prints how long the cell that wanted GPUs waited. What a scheduler's own clients see of it is in
`tests/integration/test_holders_gone.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client import KernelManager

from replkernel.hosts.places import own_host
from tests.support.breadth import first_of
from tests.support.lease_history import History, read_history
from tests.support.live import Live, eventually, kernel
from tests.support.needs import need
from tests.support.scheduler_service import Service, scheduler_files, serving
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope
from tests.support.stock import OURS

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

ON_GPU = (
    "%%gpu 1\nimport torch\nfrom replkernel.gpu.fake import put\nx = put(torch.ones(1000))\nprint('there')"
)


@contextlib.contextmanager
def gpus(count: int) -> Iterator[Service]:
    """Run a scheduler, and an agent with pretended GPUs."""
    with serving() as service:
        host = own_host(os.environ)
        command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", host, "--fake-gpus", str(count)]
        agent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: service.rest.get("status")[1]["hosts"], "the agent")
            yield service
        finally:
            agent.terminate()
            agent.wait(30)


@pytest.fixture(scope=shared_scope)
def running(place: Path) -> Iterator[Service]:
    """Run both for all tests, with one GPU; kernel processes have torch from the start."""
    need("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPLKERNEL_PRELOAD", "torch")
        with gpus(1) as service:
            yield service


@pytest.fixture
def service(running: Service) -> Service:
    """Return the scheduler once nobody has its GPU: the notebooks of the test before may still end."""
    eventually(lambda: phases(running) == ["idle"], "that nobody has the GPU")
    return running


@contextlib.contextmanager
def notebook(directory: Path, name: str, manager: KernelManager | None = None) -> Iterator[Live]:
    (directory / name).mkdir()
    with kernel(directory / name, manager, REPLKERNEL_REPLICAS="1") as live:
        yield live


def history() -> History:
    """Return what the journal says, in which no GPU was leased twice."""
    return read_history(scheduler_files() / "journal.sqlite")


def ends(directory: Path) -> Counter[str]:
    """Return for which reasons leases have ended so far, by a copy of the journal: the scheduler has it."""
    copy = directory / f"journal-{time.monotonic_ns()}.sqlite"
    copy.touch(0o600)
    with (
        contextlib.closing(sqlite3.connect(scheduler_files() / "journal.sqlite")) as of,
        contextlib.closing(sqlite3.connect(copy)) as into,
    ):
        of.backup(into)
    return Counter(read_history(copy).ends)


def phases(service: Service) -> list[str]:
    return [gpu["state"] for host in service.rest.get("status")[1]["hosts"] for gpu in host["gpus"]]


def told(scene: str, waited_s: float) -> None:
    print(f"{scene}: waited {waited_s:.2f} s")


def test_a_kernel_that_is_shut_down_at_once_leaves_its_gpu_to_the_next(
    tmp_path: Path, service: Service
) -> None:
    before = ends(tmp_path)
    with notebook(tmp_path, "b") as waits:
        manager = KernelManager(kernel_name=OURS)
        with notebook(tmp_path, "a", manager) as one:
            assert one.value(ON_GPU) == "there"
            eventually(lambda: phases(service) == ["lingering"], "that its state lingers")
            manager.shutdown_kernel(now=True)
            ran = waits.run("%%gpu 1\nprint('here')")
        assert ran.status == "ok", ran.error
        told("shutdown_kernel(now=True)", ran.said["queued_s"])
        since = ends(tmp_path) - before
    assert since["holder gone"] == 1 and "not given back" not in since


def test_a_notebook_whose_router_and_process_are_killed_leaves_its_gpu_to_the_next(
    tmp_path: Path, service: Service
) -> None:
    before = ends(tmp_path)
    with notebook(tmp_path, "b") as waits:
        manager = KernelManager(kernel_name=OURS)
        with notebook(tmp_path, "a", manager) as one:
            pid = int(one.value("import os; print(os.getpid())"))
            assert one.value(ON_GPU) == "there"
            eventually(lambda: phases(service) == ["lingering"], "that its state lingers")
            os.kill(manager.provisioner.pid, signal.SIGKILL)  # type: ignore[union-attr]
            os.kill(pid, signal.SIGKILL)
            ran = waits.run("%%gpu 1\nprint('here')")
        assert ran.status == "ok", ran.error
        told("kill -9 of router and process", ran.said["queued_s"])
        since = ends(tmp_path) - before
    assert "not given back" not in since


@pytest.mark.slow
def test_a_notebook_whose_router_alone_is_killed_leaves_its_gpu_when_its_state_is_off(
    tmp_path: Path, service: Service
) -> None:
    before = ends(tmp_path)
    with notebook(tmp_path, "b") as waits:
        manager = KernelManager(kernel_name=OURS)
        with notebook(tmp_path, "a", manager) as one:
            pid = int(one.value("import os; print(os.getpid())"))
            assert one.value(ON_GPU) == "there"
            eventually(lambda: phases(service) == ["lingering"], "that its state lingers")
            os.kill(manager.provisioner.pid, signal.SIGKILL)  # type: ignore[union-attr]
            ran = waits.run("%%gpu 1\nprint('here')")
            assert Path(f"/proc/{pid}").exists(), "it has its state in host memory"
            os.kill(pid, signal.SIGKILL)
        assert ran.status == "ok", ran.error
        told("kill -9 of the router, the process lives", ran.said["queued_s"])
        since = ends(tmp_path) - before
    assert "not given back" not in since


@pytest.mark.parametrize("holds", first_of("state on it", "nothing there"))
def test_a_notebook_gives_gpus_back_while_it_runs_a_cell_without(
    tmp_path: Path, service: Service, holds: str
) -> None:
    with notebook(tmp_path, "a") as one, notebook(tmp_path, "b") as waits:
        if holds == "state on it":
            assert one.value(ON_GPU) == "there"
        else:
            assert one.value("%%gpu 1\nprint('there')") == "there"
        began = tmp_path / "began"
        wanted = tmp_path / "wanted"
        long = one.client.execute(
            f"import pathlib, time\npathlib.Path({str(began)!r}).touch()\n"
            f"while not pathlib.Path({str(wanted)!r}).exists(): time.sleep(0.05)"
        )
        eventually(began.exists, "the cell without GPUs")
        ran = waits.run("%%gpu 1\nprint('here')")
        assert ran.status == "ok", ran.error
        told(f"the holder runs a cell without GPUs, {holds}", ran.said["queued_s"])
        wanted.touch()
        one.reply(long)
        after = one.run("print('quiet')")
        assert (after.out.strip(), after.err) == ("quiet", "")
        if holds == "state on it":
            assert one.value("%%gpu 1\nprint(float(x.sum()))") == "1000.0"
