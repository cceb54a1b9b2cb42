"""What training supersedes leaves the disk while it goes on, what is needed stays, an end leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.replication.checkpoint import CHUNKS_KEPT
from replkernel.settings import data_dir
from tests.support.breadth import first_of
from tests.support.files_below import files_below
from tests.support.live import Live, eventually, kernel

pytestmark = [pytest.mark.timeout(180), pytest.mark.one_host]

MIB = 2**20
STATE = 24 * MIB
MAKE = f"import numpy as np, os; rng = np.random.default_rng(0); w = rng.random({STATE // 8}); steps = 0"
STEP = "w = rng.random(w.size); steps += 1; check = float(w.sum())"
ENDED_S = 15.0
"""The store is looked over each minute: what goes sooner went with its kernel."""
OLDER = CHUNKS_KEPT * CHUNK_BYTES
"""What older checkpoints may keep beside the newest one."""


def chunks() -> int:
    """Return the bytes of all chunks of store and caches, each inode once."""
    sizes = {}
    for directory in (data_dir(os.environ) / "store" / "blobs", *data_dir(os.environ).glob("agents/*/cache")):
        for path in files_below(directory, "**/*/*"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def train(live: Live, cells: int) -> int:
    """Run so many cells; return the most that was on the disk after one."""
    most = 0
    for _ in range(cells):
        live.value(STEP)
        time.sleep(0.5)
        most = max(most, chunks())
    return most


@pytest.mark.parametrize(("now", "history_mib"), first_of((False, 0), (True, 64)))
def test_training_keeps_few_versions_and_its_end_leaves_none(
    tmp_path: Path, now: bool, history_mib: int
) -> None:
    before, kept = chunks(), STATE + history_mib * MIB
    replicas = "1" if now else "3"
    with kernel(tmp_path, REPLKERNEL_REPLICAS=replicas, REPLKERNEL_HISTORY_MIB=str(history_mib)) as live:
        live.value(MAKE)
        most = train(live, 16) - before
        assert most <= 10 * STATE + history_mib * MIB, "sixteen versions were made"
        eventually(lambda: chunks() - before < kept + OLDER + MIB, "the end of what is superseded", 90.0)
        usage = [sys.executable, "-m", "replkernel.cli", "store", "usage"]
        said = subprocess.run(usage, capture_output=True, text=True, timeout=60, check=True).stdout
        assert "IN USE" in said, said
        live.manager.shutdown_kernel(now=now)
        eventually(lambda: chunks() <= before, "the end of all of it", ENDED_S)


@pytest.mark.slow
def test_only_the_newest_of_many_versions_is_left_on_the_disk(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_DURABLE="before_reply", REPLKERNEL_HISTORY_POINTS="0") as live:
        live.value(MAKE)
        train(live, 8)
        executor = int(live.value("print(os.getpid())"))
        eventually(lambda: chunks() < STATE + OLDER + MIB, "the end of what is superseded", 90.0)
        os.kill(executor, signal.SIGKILL)
        time.sleep(0.5)
        assert live.value("print(steps, float(w.sum()) == check)") == "8 True"
