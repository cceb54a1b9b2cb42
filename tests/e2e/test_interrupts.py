"""Stop means stop: an interrupt ends what stock ends, hits no other cell, and a second one ends the rest."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from replkernel.router.core.interrupts import READING_S
from tests.support.live import Live, eventually, kernel
from tests.support.shared_place import _kernel_in_reach, _own_directories, place
from tests.support.stuck_cells import CATCHES_ALL, ENDING, ENDS_AS, GO, NEVER_LOOKS

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

pytestmark = pytest.mark.timeout(180)

PRELOADED = "pandas,torch"
"""Executor and standbys have them from their zygote: these tests are not about imports."""

STARTING, BUSY_S = ("shell", "os.system", "subprocess"), 0.1
"""The first start a `sleep`, which is waited for. All are busy so soon after it, or after they said `go`."""

ENDS_WITHIN_S = 30.0
"""Long enough for a loaded machine, and far below what the cells take by themselves."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path, REPLKERNEL_PRELOAD=PRELOADED) as running:
        running.run("kept = [1]")
        yield running


def begin(live: Live, code: str, wanted: str = GO) -> str:
    """Send a cell and return its id once it has printed what it was to print."""
    request: str = live.client.execute(code, allow_stdin=True)
    await_text(live, wanted)
    return request


def await_text(live: Live, *wanted: str, within_s: float = 60.0) -> None:
    """Wait until all of it is printed, in whichever order."""
    deadline = time.monotonic() + within_s
    text = ""
    while not all(one in text for one in wanted):
        assert time.monotonic() < deadline, f"{wanted!r} was not printed, but {text!r}"
        with_text = _next(live)
        text += with_text["content"].get("text", "") if with_text else ""


def _next(live: Live) -> dict[str, Any] | None:
    try:
        message: dict[str, Any] = live.client.get_iopub_msg(timeout=0.5)
    except queue.Empty:
        return None
    return message


def reply(live: Live, request: str, within_s: float = ENDS_WITHIN_S) -> dict[str, Any]:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            message = live.client.get_shell_msg(timeout=0.5)
        except queue.Empty:
            continue
        if message["parent_header"].get("msg_id") == request:
            while live.client.stdin_channel.socket.poll(0):  # A question that nobody answers any more.
                live.client.get_stdin_msg(timeout=1)
            return dict(message["content"])
    raise AssertionError(f"no reply within {within_s:g} s")


def _names_below(process: psutil.Process) -> list[str]:
    """Return the names of a process's children, and of theirs."""
    names = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(child.name())
    return names


def test_an_interrupt_ends_each_cell_that_it_ends_on_stock_and_the_next_one_runs(live: Live) -> None:
    ended, kept = {}, []
    executor = psutil.Process(int(live.value("import os; print(os.getpid())")))
    for name, cell in ENDING.items():
        request = begin(live, cell)
        if name in STARTING:
            eventually(lambda: "sleep" in _names_below(executor), "the start of its process")
        time.sleep(BUSY_S)
        live.manager.interrupt_kernel()
        ended[name] = reply(live, request).get("ename")
        kept.append(int(live.value("kept.append(1); print(len(kept))")))
    assert ended == {name: ENDS_AS.get(name, "KeyboardInterrupt") for name in ENDING}
    assert kept == list(range(2, len(ENDING) + 2))


@pytest.mark.slow
def test_an_interrupt_right_at_the_end_of_a_cell_hits_no_other(live: Live) -> None:
    live.run("runs = []")
    for number in range(30):
        request = live.client.execute(f"import time; time.sleep(0.02); runs.append({number})")
        time.sleep(0.015 + number * 0.0008)
        live.manager.interrupt_kernel()
        status = reply(live, request)["status"]
        following = live.run("import time; time.sleep(0.03); print(len(runs))")
        assert following.status == "ok", (number, status, following.error)


def test_a_cell_that_never_looks_is_ended_by_the_second_interrupt(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_PRELOAD=PRELOADED, REPLKERNEL_DURABLE="before_reply") as live:
        live.run("kept = [1, 2, 3]")
        request = begin(live, NEVER_LOOKS)
        for _ in range(3):
            live.manager.interrupt_kernel()
        await_text(live, "Interrupt it again to end its process")
        time.sleep(READING_S + 0.1)
        live.manager.interrupt_kernel()
        content = reply(live, request)
        assert content["ename"] == "ExecutorLost"
        assert "did not end when it was interrupted" in content["evalue"]
        assert live.value("print(kept)") == "[1, 2, 3]"


@pytest.mark.slow
def test_with_one_replica_the_second_interrupt_keeps_the_variables_too(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_REPLICAS="1", REPLKERNEL_DURABLE="before_reply") as live:
        live.run("kept = [1, 2, 3]; import os; first = os.getpid()")
        request = begin(live, CATCHES_ALL)
        live.manager.interrupt_kernel()
        await_text(live, "caught 1", "Interrupt it again to end its process")
        time.sleep(READING_S + 0.1)
        live.manager.interrupt_kernel()
        assert reply(live, request)["ename"] == "ExecutorLost"
        assert live.value("print(kept, os.getpid() != first)") == "[1, 2, 3] True"
