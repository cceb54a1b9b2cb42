"""A cell that reaches a GPU without having asked: it stops there, gets a lease on its host, and goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.gpu.fake_usage import read_usage
from tests.e2e.test_gpu_state import GPU, SET, pid_of, two_notebooks
from tests.support.breadth import first_of
from tests.support.live import Live, eventually
from tests.support.needs import need
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope, tidy

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

need("torch")
pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

HIDDEN = {"REPLKERNEL_UNLEASED_GPUS": "none"}
UNSEEN = """import os, torch
from replkernel.gpu.fake import put
before = os.environ["CUDA_VISIBLE_DEVICES"]
print("begins")
x = put(torch.arange(1000.0))
print(before, os.environ["CUDA_VISIBLE_DEVICES"], x.sum().item())
"""
HOLD = """%%gpu 1
import pathlib, time
pathlib.Path("{place}/holds").touch()
while not pathlib.Path("{place}/goes").exists():
    time.sleep(0.02)
"""


@pytest.fixture(scope=shared_scope)
def shared(place: Path) -> Iterator[tuple[Live, Live]]:
    with two_notebooks(place, preload={}, **HIDDEN) as made:  # Their cells are where torch is imported.
        yield made


@pytest.fixture
def notebooks(shared: tuple[Live, Live]) -> tuple[Live, Live]:
    for each in shared:
        tidy(each)
    return shared


def hold_the_gpu(two: Live, directory: Path) -> str:
    """Have a notebook run a cell on the only GPU until `directory`/goes is there; return its message."""
    message = str(two.client.execute(HOLD.format(place=directory)))
    eventually((directory / "holds").exists, "the other notebook's cell")
    return message


def shown(live: Live, message: str, wanted: str) -> list[dict[str, Any]]:
    """Take what a cell shows until a display has these words; return all displays of it."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while not any(wanted in display["data"]["text/plain"] for display in found):
        assert time.monotonic() < deadline, f"no display says {wanted!r}: {found}"
        said = live.client.get_iopub_msg(timeout=60)
        if said["parent_header"].get("msg_id") == message and said["msg_type"].endswith("display_data"):
            found.append(said["content"])
    return found


def test_a_cell_that_reaches_a_gpu_gets_a_lease_and_goes_on(
    notebooks: tuple[Live, Live], tmp_path: Path
) -> None:
    one, two = notebooks
    first = pid_of(one)
    ran = one.run(UNSEEN)
    assert (ran.error, ran.out.split()) == ("", ["begins", "-1", GPU, "499500.0"])
    assert ran.said["gpus"] == [GPU]
    lines = [content["data"]["text/plain"] for kind, content in ran.messages if kind == "display_data"]
    silent = [line for line in lines if "does not answer" in line]  # A stall of the scheduler's is told.
    assert lines == silent, "what is served at once shows nothing"
    assert read_usage(GPU, os.environ) == {first: 4000}
    # It is a lease as any other: it lingers, is wanted back, and a cell that reaches the state another way
    # waits for its turn, with its place shown, and has it back.
    assert two.value(SET.format(name="y", factor=2)) == "999000.0"
    assert first not in read_usage(GPU, os.environ)
    holds = hold_the_gpu(two, tmp_path)
    message = one.client.execute("print(globals()['x'][10:20].sum().item())")
    displays = shown(one, message, "number 1 in the queue")
    assert displays[-1]["metadata"]["replkernel"]["waiting"]["position"] == 1
    (tmp_path / "goes").touch()
    shown(one, message, "Resumed: 3.91 KiB back on")
    reply = one.reply(message)
    assert reply["content"]["status"] == "ok", reply["content"]
    assert reply["metadata"]["replkernel"]["resumed_bytes"] == 4000
    assert holds


def test_waiting_in_a_cell_ends_with_an_interrupt_and_the_place_in_the_queue_with_it(
    notebooks: tuple[Live, Live], tmp_path: Path
) -> None:
    one, two = notebooks
    pid = pid_of(one)
    hold_the_gpu(two, tmp_path)
    message = one.client.execute(UNSEEN)
    shown(one, message, "number 1 in the queue")
    os.kill(pid, signal.SIGINT)
    reply = one.reply(message)
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    shown(one, message, "does not wait")
    (tmp_path / "goes").touch()
    assert two.value("%%gpu 1\nprint(1)") == "1", "nobody else holds it"
    assert one.value(UNSEEN).split()[1:3] == ["-1", GPU], "and the process is as good as before"


@pytest.mark.parametrize("now", first_of(False, True))
def test_gpus_that_were_chosen_for_every_cell_outlive_a_restart(
    notebooks: tuple[Live, Live], *, now: bool
) -> None:
    """Cells that are all run again would see no GPU otherwise, and nothing would say so."""
    one, _ = notebooks
    asks = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], 'x' in globals())"
    one.run("%gpu 1")
    one.run("x = 1")
    one.manager.restart_kernel(now=now)
    one.client.wait_for_ready(timeout=60)
    assert one.value(asks).split() == [GPU, "False"]
    one.run("%gpu off")
    one.manager.restart_kernel(now=now)
    one.client.wait_for_ready(timeout=60)
    assert one.value(asks).split() == ["-1", "False"]
    assert "CHOSEN" not in one.value("print(sorted(os.environ))")


@pytest.mark.slow
def test_a_cell_that_says_that_it_needs_none_is_told_so(notebooks: tuple[Live, Live]) -> None:
    one, _ = notebooks
    ran = one.run("%%gpu 0\n" + UNSEEN)
    assert ran.status == "error"
    assert "NoLease" in ran.error
    assert "`%%gpu 0`" in ran.error
