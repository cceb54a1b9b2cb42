"""A frame that outgrows a small disk, of the store or of all that replkernel keeps; the notebook goes on.

What users notice: cells run as ever, what is not durable is named, a kill loses only that and says so, and
with room again all is durable by itself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.breadth import first_of
from tests.support.ending import end_agents
from tests.support.live import Live, Ran, eventually, kernel
from tests.support.small_disk import fill, small_disk

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_machine]

DISK_MIB = 256
ROWS = 4_000_000
REST_S = 2.0
"""So long nobody asks: a large frame is captured while the notebook rests."""
GROW_AS = str(ROWS)
GROWTH = 14
"""Cells that each add ROWS floats, 30 MiB: 420 MiB in all."""
FIRST = (
    "import os, numpy as np, pandas as pd\n"
    "rng = np.random.default_rng(3)\n"
    "frame = pd.DataFrame({'c0': rng.random(ROWS)}); sums = [float(frame.c0.sum())]; small = 0\n"
).replace("ROWS", str(ROWS))
GROW = """
frame[f'c{frame.shape[1]}'] = rng.random(ROWS)
sums.append(float(frame.iloc[:, -1].sum())); small += 1
"""
SHRINK = """
frame = frame[['c0', 'c1']].head(ROWS // 100).copy(); after = 'there is room'
sums = [float(frame.iloc[:, i].sum()) for i in range(2)]; small = 1
""".replace("ROWS", str(ROWS))
"""What it takes fits beside the version that is durable, and gives that one's room back."""
LAW = """
kept = all(float(frame.iloc[:, i].sum()) == one for i, one in enumerate(sums))
print(frame.shape[1], len(sums), small, kept)
"""
"""A state that existed: columns, sums and the counter are of one cell."""


@contextmanager
def _on_small_disk(tmp_path: Path, *, everything: bool) -> Iterator[tuple[Live, Path]]:
    """Run a kernel whose store, or whose whole data directory, is on a small disk."""
    with small_disk(tmp_path / "disk", mebibytes=DISK_MIB) as disk:
        where = (
            {"JUPYTER_DATA_DIR": str(disk)} if everything else {"REPLKERNEL_STORE": f"file://{disk}/store"}
        )
        try:
            with kernel(tmp_path, **where) as live:
                live.value(FIRST)
                eventually(lambda: _frame_is_durable(live), "that the first frame is durable", 60.0)
                yield live, disk
        finally:
            end_agents(os.environ | where)


def _grow(live: Live) -> list[Ran]:
    ran = [live.run(GROW.replace("ROWS", str(ROWS))) for _ in range(GROWTH)]
    assert [(each.status, each.error) for each in ran if each.status != "ok"] == []
    return ran


def _said_of_frame(live: Live) -> bool:
    """Tell whether the kernel says of the frame, by name, that it is not durable, and why."""
    time.sleep(REST_S)
    said = live.value("%replkernel status") + live.value("%replkernel state")
    named = "`frame` is not durable" in said or "not captured yet: `frame`" in said
    return named and "no room left" in said + live.terminal


def _frame_is_durable(live: Live) -> bool:
    time.sleep(REST_S)
    state = live.value("%replkernel state")
    return re.search(r"^frame\s.*\byes\b", state, re.MULTILINE) is not None and "no room left" not in state


@pytest.mark.parametrize("everything", first_of(False, True), ids=["store", "data_dir"])
def test_a_frame_that_outgrows_the_disk_is_named_and_durable_once_there_is_room(
    tmp_path: Path, everything: bool
) -> None:
    with _on_small_disk(tmp_path, everything=everything) as (live, _):
        _grow(live)
        columns = GROWTH + 1
        assert live.value(LAW) == f"{columns} {columns} {GROWTH} True"
        eventually(lambda: _said_of_frame(live), "that the frame is not durable", 40.0)
        live.value(SHRINK)
        eventually(lambda: _frame_is_durable(live), "that the frame is durable", 60.0)
        os.kill(int(live.value("print(os.getpid())")), signal.SIGKILL)
        time.sleep(0.5)
        assert live.value("print(after)") == "there is room"
        assert live.value(LAW) == "2 2 1 True"


@pytest.mark.parametrize("everything", first_of(True, False), ids=["data_dir", "store"])
def test_an_executor_that_is_killed_while_the_disk_is_full_leaves_nothing_silently_wrong(
    tmp_path: Path, everything: bool
) -> None:
    with _on_small_disk(tmp_path, everything=everything) as (live, disk):
        _grow(live)
        eventually(lambda: _said_of_frame(live), "that the frame is not durable", 40.0)
        os.kill(int(live.value("print(os.getpid())")), signal.SIGKILL)
        time.sleep(0.5)
        whole = live.run(LAW)
        assert whole.status == "ok", (whole.error, whole.err)
        columns, sums, small, right = whole.out.split()
        assert right == "True" and columns == sums == str(int(small) + 1), (whole.out, whole.err)
        assert int(columns) == GROWTH + 1 or "the notebook is back at cell" in whole.err, whole.err
        subprocess.run(["mount", "-o", "remount,size=2g", str(disk)], check=True)
        live.value(FIRST + "again = 1")
        eventually(lambda: _frame_is_durable(live), "that the frame is durable", 60.0)


@pytest.mark.slow
def test_a_disk_that_is_full_to_the_last_byte_costs_no_cell_and_nothing_that_was_durable(
    tmp_path: Path,
) -> None:
    with _on_small_disk(tmp_path, everything=True) as (live, disk):
        _grow(live)
        fill(disk / "filler")
        for number in range(60):
            ran = live.run(f"more{number} = os.urandom(3000)")
            assert ran.status == "ok", ran.error
        no_room = f"No space is left on the disk of {disk}"
        eventually(lambda: no_room in live.value("%replkernel status"), "why nothing is committed", 40.0)
        durable = re.search(r"last durable: cell (\d+), \d+ s ago", live.value("%replkernel state"))
        assert durable is not None
        os.kill(int(live.value("print(os.getpid())")), signal.SIGKILL)
        time.sleep(0.5)
        whole = live.run(LAW)
        assert whole.status == "ok", (whole.error, whole.err)
        columns, sums, small, right = whole.out.split()
        assert right == "True" and columns == sums == str(int(small) + 1), (whole.out, whole.err)
        back = re.search(r"the notebook is back at cell (\d+)", whole.err)
        assert back is not None and int(back[1]) >= int(durable[1]), whole.err
        live.value("again = 1")
        (disk / "filler").unlink()
        eventually(lambda: _frame_is_durable(live), "that all is durable", 60.0)
        os.kill(int(live.value("print(os.getpid())")), signal.SIGKILL)
        time.sleep(0.5)
        assert live.value("print(again)") == "1"
