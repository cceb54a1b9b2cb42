"""Training that dies: the state comes back as after one cell, whole, and the cells after it are named."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.client.inquiry import ask_agents, live_agents
from replkernel.launch.kernel_record import read_record
from replkernel.settings import data_dir
from tests.support.live import AGENT_S, Live, eventually, kernel

pytestmark = pytest.mark.timeout(240)

TRAINING = """
import os
import numpy as np

model, opt, losses = np.zeros(20_000_000), np.zeros(20_000_000), []

def step():
    global last
    for part in (model, opt):
        part += 1.0
    losses.append(float(len(losses)))
    last = len(losses)

print(os.getpid())
"""
SHOWN = "print(len(losses), int(model.min()), int(model.max()), int(opt.min()), int(opt.max()))"
SMALLER = """
import os, pickle, time
while True:
    began = time.perf_counter()
    pickle.dumps(large, 5)
    if time.perf_counter() - began < 0.25:
        break
    large = large[: len(large) // 2].copy()
del began
print(os.getpid())
"""
"""Makes `large` such that two looks at it fit into what captures may hold up cells for, 2 s, on any machine.

A look takes about as long as to pickle it; half of what takes longer is still far above the 50 ms in which a
capture is not in anybody's way.
"""
LOST = re.compile(
    r"died before cells? ([\d to,and]+) (?:was|were) durable: the notebook is back at cell (\d+)"
)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path) as running:
        yield running


def is_durable(live: Live) -> bool:
    """Tell whether nothing of the state waits to be checked or committed."""
    time.sleep(0.5)
    table = live.value("%replkernel state")
    return not re.search(r"pending|not checked since|not captured yet", table)


def begin(live: Live) -> int:
    """Make the model, wait until all of it is safe, and return the executor's process."""
    pid = int(live.value(TRAINING))
    eventually(lambda: is_durable(live), "a durable model", 60)
    return pid


def one_cell(shown: str) -> int:
    """Return after how many steps the state is, which must be the same for all of it."""
    counts = {int(number) for number in shown.split()}
    assert len(counts) == 1, f"a mixture of cells: {shown}"
    return counts.pop()


def test_a_kill_right_after_training_gives_the_state_after_one_cell(live: Live) -> None:
    pid = begin(live)
    count = 0
    for _ in range(2):
        count = live.run("step()").reply["content"]["execution_count"]
    os.kill(pid, signal.SIGKILL)
    after = live.run(SHOWN, 120)
    assert after.status == "ok", after.error
    steps = one_cell(after.out)
    assert after.reply["content"]["execution_count"] == count + 1
    told = LOST.search(after.err)
    if steps < 2:
        assert told, after.err
        assert 1 <= int(told[2]) <= count - (2 - steps), "cells without a step may have been after the point"
    else:
        assert not told
    again = live.run("step(); " + SHOWN, 120)
    assert (one_cell(again.out), again.err) == (steps + 1, "")


@pytest.mark.slow
def test_variables_of_lost_cells_are_gone_with_them_and_can_be_made_again(live: Live) -> None:
    pid = begin(live)
    live.run("step(); made = [1]")
    live.run("step(); made.append(2)")
    os.kill(pid, signal.SIGKILL)
    after = live.run(SHOWN + "; print('made' in globals(), 'last' in globals())", 120)
    shown, bound = after.out.splitlines()
    steps = one_cell(shown)
    assert bound.split() == [str(steps > 0), str(steps > 0)]
    again = live.run("made = 'again'; step()", 120)
    assert again.status == "ok", again.error
    eventually(lambda: is_durable(live), "a durable notebook", 60)
    os.kill(int(live.value("import os; print(os.getpid())")), signal.SIGKILL)
    assert live.value("print(made)", 120) == "again"
    assert one_cell(live.value(SHOWN, 120)) == steps + 1


def test_all_killed_at_once_come_back_to_the_state_after_one_cell(live: Live) -> None:
    pid = begin(live)
    agent = ask_agents(os.environ, AGENT_S)
    (known,) = agent.kernels
    record = read_record(data_dir(os.environ), known.kernel_id)
    assert record is not None
    for _ in range(3):
        count = live.run("step()").reply["content"]["execution_count"]
    processes = [replica.kernel_pid for replica in known.replicas if replica.kernel_pid]
    (running,) = live_agents(os.environ)
    for each in (pid, running.pid, record.router_pid, *processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    eventually(lambda: live.manager.provisioner.process.poll() is not None, "the router's end")
    live.manager.restart_kernel(now=True)
    live.client.wait_for_ready(timeout=60)
    after = live.run(SHOWN, 120)
    assert after.status == "ok", after.error
    steps = one_cell(after.out)
    assert steps == 3 or f"run cell{'s' if steps < 2 else ''} " in after.err, after.err
    assert after.reply["content"]["execution_count"] == count + 1


@pytest.mark.slow
def test_a_new_variable_is_safe_before_a_long_cell_that_follows_at_once(live: Live) -> None:
    live.client.execute("import numpy as np; small = 1; big = np.arange(3_000_000)")
    long = live.client.execute("import os; print('pid', os.getpid(), flush=True)\nwhile True: pass")
    shown = ""
    while "pid" not in shown:
        message = live.client.get_iopub_msg(timeout=60)
        shown = message["content"].get("text", "")
    time.sleep(1.0)
    os.kill(int(shown.split()[1]), signal.SIGKILL)
    live.reply(long)
    after = live.run("print(small, len(big))", 120)
    assert (after.error, after.out) == ("", "1 3000000\n"), after.err


@pytest.mark.parametrize(
    "large",
    [
        pytest.param("np.ones(25_000_000)", id="array"),
        pytest.param("[float(number) for number in range(2_000_000)]", id="numbers", marks=pytest.mark.slow),
        pytest.param("[{} for _ in range(300_000)]", id="dictionaries", marks=pytest.mark.slow),
    ],
)
def test_cells_before_a_long_one_are_safe_whatever_large_they_leave_alone(live: Live, large: str) -> None:
    pid = int(live.value(f"import numpy as np; large = {large}; m = 0" + SMALLER))
    eventually(lambda: is_durable(live), "a durable variable", 60)
    time.sleep(5)
    live.run("m = 50; rate = 0.1")
    live.run("m = 51")
    threading.Timer(5, os.kill, (pid, signal.SIGKILL)).start()
    assert live.run("m = 99; time.sleep(100)").status == "error"
    assert live.value("print(m, rate)") == "51 0.1"
