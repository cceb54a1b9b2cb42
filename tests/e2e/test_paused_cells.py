"""A running cell stands still for a shorter one of another notebook, and goes on with all that it had."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.gpu.fake_usage import read_usage
from replkernel.leasing.standing import Standing, ask_scheduler
from tests.e2e.test_gpu_in_cell import shown
from tests.e2e.test_gpu_state import GPU, pid_of, two_notebooks
from tests.support.live import Live, eventually
from tests.support.needs import need
from tests.support.scheduler_service import Service, no_gpu_was_ever_leased_twice

need("torch")
pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

LONG = """%%gpu 1 --preemptible --for 2h
import pathlib, time, torch
from replkernel.gpu.fake import put
x = put(torch.arange(1000.0))
steps = 0
while not pathlib.Path("goes").exists():
    steps += 1
    pathlib.Path("steps").write_text(str(steps))
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
pathlib.Path("holds").touch()
while not pathlib.Path("ends").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, Live]]:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_PREEMPT", "shortest")
    with two_notebooks(tmp_path) as made:
        yield made
    assert no_gpu_was_ever_leased_twice() > 1


def begin(one: Live, directory: Path) -> str:
    """Have a long cell compute on the only GPU; return its message."""
    message = str(one.client.execute(LONG))
    eventually((directory / "a" / "steps").exists, "the long cell")
    return message


def steps(directory: Path) -> str:
    return (directory / "a" / "steps").read_text()


def test_a_long_cell_stands_still_for_a_shorter_one_and_goes_on_with_its_state(
    notebooks: tuple[Live, Live], tmp_path: Path
) -> None:
    one, two = notebooks
    first = pid_of(one)
    long = begin(one, tmp_path)
    assert two.value(SHORT) == "999000.0"
    displays = shown(one, long, "it has gone on with")
    texts = [display["data"]["text/plain"] for display in displays]
    assert texts[0].startswith("Paused for a shorter cell")
    assert texts[-1] == f"Paused for a shorter cell, it has gone on with {GPU}."
    before = steps(tmp_path)
    eventually(lambda: steps(tmp_path) != before, "the long cell's next step")
    assert read_usage(GPU, os.environ) == {first: 4000}
    (tmp_path / "a" / "goes").touch()
    reply = one.reply(long)
    assert reply["content"]["status"] == "ok", reply["content"]
    said = reply["metadata"]["replkernel"]
    assert said["gpus"] == [GPU]
    assert one.value("%%gpu 1\nprint(x.sum().item())") == "499500.0"


def test_an_interrupt_ends_a_paused_cell_at_once(notebooks: tuple[Live, Live], tmp_path: Path) -> None:
    one, two = notebooks
    pid = pid_of(one)
    long = begin(one, tmp_path)
    two.client.execute(HOLDS)
    eventually((tmp_path / "b" / "holds").exists, "the shorter cell")
    at = steps(tmp_path)
    time.sleep(0.3)
    assert steps(tmp_path) == at, "it stands still"
    os.kill(pid, signal.SIGINT)
    reply = one.reply(long)
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    (tmp_path / "b" / "ends").touch()
    assert one.value("%%gpu 1\nprint(x.sum().item())") == "499500.0", "with all that it had"


@pytest.mark.slow
def test_a_scheduler_that_is_killed_meanwhile_has_the_cell_go_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_PREEMPT", "shortest")
    services: list[Service] = []
    with two_notebooks(tmp_path, 1, services) as (one, two):
        long = begin(one, tmp_path)
        two.client.execute(HOLDS)
        eventually((tmp_path / "b" / "holds").exists, "the shorter cell")
        at = steps(tmp_path)
        services[0].kill()  # The cell that waits has another one started, which replays its journal.
        eventually(lambda: running_scheduler() is not None, "the next scheduler", 60.0)
        assert steps(tmp_path) == at, "it stands still, whether anybody answers or not"
        (tmp_path / "b" / "ends").touch()
        eventually(lambda: steps(tmp_path) != at, "the long cell's next step", 90.0)
        (tmp_path / "a" / "goes").touch()
        assert one.reply(long)["content"]["status"] == "ok"
        assert read_usage(GPU, os.environ) == {pid_of(one): 4000}, "one notebook has it"


def running_scheduler() -> Standing | None:
    """Return what the scheduler tells, if one answers."""
    scheduler, told = ask_scheduler(os.environ)
    return told if scheduler is not None and not scheduler.trouble and told.hosts else None


@pytest.mark.slow
def test_a_router_that_is_killed_meanwhile_loses_no_paused_cell(
    notebooks: tuple[Live, Live], tmp_path: Path
) -> None:
    one, two = notebooks
    begin(one, tmp_path)
    two.client.execute(HOLDS)
    eventually((tmp_path / "b" / "holds").exists, "the shorter cell")
    at = steps(tmp_path)
    os.kill(one.manager.provisioner.pid, signal.SIGKILL)
    eventually(lambda: not one.manager.is_alive(), "the router's end")
    one.manager.restart_kernel(now=True)
    one.client.wait_for_ready(timeout=60)
    assert steps(tmp_path) == at, "it stands still, also for the next router"
    (tmp_path / "b" / "ends").touch()
    eventually(lambda: steps(tmp_path) != at, "the long cell's next step", 60.0)
    (tmp_path / "a" / "goes").touch()
    assert one.value("%%gpu 1\nprint(x.sum().item())") == "499500.0"
