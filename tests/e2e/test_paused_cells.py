"""A running cell stands still for a shorter one of another notebook, and goes on with all that it had.

All tests play on the same two notebooks: each begins with the first one's long cell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from replkernel_server.errors import JournalInUse

from replkernel.gpu.fake_usage import read_usage
from replkernel.leasing.standing import Standing, ask_scheduler
from tests.e2e.test_gpu_in_cell import shown
from tests.e2e.test_gpu_state import GPU, pid_of, two_notebooks
from tests.support.ending import end_schedulers
from tests.support.live import Live, eventually
from tests.support.needs import need
from tests.support.scheduler_service import Service, no_gpu_was_ever_leased_twice
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope, tidy

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

need("torch")
pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

LONG = """%%gpu 1 --preemptible --for 2h
import pathlib, time, torch
from replkernel.gpu.fake import put
x = put(torch.arange(1000.0))
steps = 0
while not pathlib.Path("{place}/goes").exists():
    steps += 1
    pathlib.Path("{place}/steps").write_text(str(steps))
    time.sleep(0.02)
print(x.sum().item())
"""
SHORT = """%%gpu 1 --for 5s
import torch
from replkernel.gpu.fake import put
y = put(torch.arange(1000.0) * 2)
print(y.sum().item())
"""
HOLDS = """%%gpu 1 --for 5s
import pathlib, time
pathlib.Path("{place}/holds").touch()
while not pathlib.Path("{place}/ends").exists():
    time.sleep(0.02)
"""


class Scene:
    """Two notebooks with one GPU: a long cell of the first, and a shorter one of the second."""

    def __init__(self, one: Live, two: Live, services: list[Service], directory: Path) -> None:
        self.one, self.two, self.services = one, two, services
        self._directory = directory
        self.pid = pid_of(one)

    def begin(self) -> str:
        """Have a long cell compute on the only GPU; return its message."""
        message = str(self.one.client.execute(LONG.format(place=self._directory)))
        eventually((self._directory / "steps").exists, "the long cell")
        return message

    def steps(self) -> str:
        return (self._directory / "steps").read_text()

    def goes(self) -> None:
        """Have the long cell end."""
        (self._directory / "goes").touch()

    def pause(self) -> tuple[str, str]:
        """Have a shorter cell take the GPU and keep it; return its message, and how far the long one came."""
        message = str(self.two.client.execute(HOLDS.format(place=self._directory)))
        eventually((self._directory / "holds").exists, "the shorter cell")
        return message, self.steps()

    def resume(self, short: str) -> None:
        """Have the shorter cell end."""
        (self._directory / "ends").touch()
        assert self.two.reply(short, 90.0)["content"]["status"] == "ok"


@pytest.fixture(scope=shared_scope)
def world(place: Path) -> Iterator[tuple[Live, Live, list[Service]]]:
    services: list[Service] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPLKERNEL_SCHEDULER_PREEMPT", "shortest")
        with two_notebooks(place, 1, services) as (one, two):
            yield one, two, services
    end_schedulers(place)
    assert eventually(granted, "the end of the scheduler that a notebook has started") > 1


def granted() -> int:
    """Return how many leases there were, none of a GPU that another one had; 0 while a scheduler runs."""
    with contextlib.suppress(JournalInUse):
        return no_gpu_was_ever_leased_twice()
    return 0


@pytest.fixture
def scene(world: tuple[Live, Live, list[Service]], tmp_path: Path) -> Scene:
    one, two, services = world
    for each in (one, two):
        tidy(each)
    return Scene(one, two, services, tmp_path)


def test_a_long_cell_stands_still_for_a_shorter_one_and_goes_on_with_its_state(scene: Scene) -> None:
    one, two = scene.one, scene.two
    long = scene.begin()
    assert two.value(SHORT) == "999000.0"
    displays = shown(one, long, "it has gone on with")
    texts = [display["data"]["text/plain"] for display in displays]
    assert texts[0].startswith("Paused for a shorter cell")
    assert texts[-1] == f"Paused for a shorter cell, it has gone on with {GPU}."
    before = scene.steps()
    eventually(lambda: scene.steps() != before, "the long cell's next step")
    assert read_usage(GPU, os.environ) == {scene.pid: 4000}
    scene.goes()
    reply = one.reply(long)
    assert reply["content"]["status"] == "ok", reply["content"]
    said = reply["metadata"]["replkernel"]
    assert said["gpus"] == [GPU]
    assert one.value("%%gpu 1\nprint(x.sum().item())") == "499500.0"


def test_an_interrupt_ends_a_paused_cell_at_once(scene: Scene) -> None:
    one = scene.one
    long = scene.begin()
    short, at = scene.pause()
    time.sleep(0.3)
    assert scene.steps() == at, "it stands still"
    os.kill(scene.pid, signal.SIGINT)
    reply = one.reply(long)
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    scene.resume(short)
    assert one.value("%%gpu 1\nprint(x.sum().item())") == "499500.0", "with all that it had"


def test_a_scheduler_that_is_killed_meanwhile_has_the_cell_go_on_all_the_same(scene: Scene) -> None:
    long = scene.begin()
    short, at = scene.pause()
    scene.services[0].kill()  # The cell that waits has another one started, which replays its journal.
    eventually(lambda: running_scheduler() is not None, "the next scheduler", 60.0)
    assert scene.steps() == at, "it stands still, whether anybody answers or not"
    scene.resume(short)
    eventually(lambda: scene.steps() != at, "the long cell's next step", 90.0)
    scene.goes()
    assert scene.one.reply(long)["content"]["status"] == "ok"
    assert read_usage(GPU, os.environ) == {scene.pid: 4000}, "one notebook has it"


def running_scheduler() -> Standing | None:
    """Return what the scheduler tells, if one answers."""
    scheduler, told = ask_scheduler(os.environ)
    return told if scheduler is not None and not scheduler.trouble and told.hosts else None


@pytest.mark.slow
def test_a_router_that_is_killed_meanwhile_loses_no_paused_cell(scene: Scene) -> None:
    one = scene.one
    scene.begin()
    short, at = scene.pause()
    os.kill(one.manager.provisioner.pid, signal.SIGKILL)
    eventually(lambda: not one.manager.is_alive(), "the router's end")
    one.manager.restart_kernel(now=True)
    one.client.wait_for_ready(timeout=60)
    assert scene.steps() == at, "it stands still, also for the next router"
    scene.resume(short)
    eventually(lambda: scene.steps() != at, "the long cell's next step", 60.0)
    scene.goes()
    assert one.value("%%gpu 1\nprint(x.sum().item())") == "499500.0"
