"""What going back costs: undo beside 1 GB that did not change, and what many points of a frame keep.

Kishu runs the same cells in the same run.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.kernels import Kernel, kernel, place, pss_bytes
from tests.bench.report import Result
from tests.bench.state_kernels import touch_memory
from tests.bench.state_peers import HERE, RUN_S, kishu_python
from tests.bench.training_disk import disk_bytes
from tests.support.stock import OURS

MS, MIB = 1000.0, 2**20
ROUNDS = 8
KISHU_ROUNDS = 2
"""Its checkouts take many seconds each."""
FILL = """\
import numpy as np
unchanged = np.random.default_rng(0).random(125_000_000)
small = [0] * 10
"""
CHANGE = "small[3] = {number}"
CHECK = "assert small == [0] * 10 and len(unchanged) == 125_000_000"
UNDO = "%replkernel undo"

CELLS, LOOK_EVERY = 60, 10
LONG_CELLS, LONG_LOOK_EVERY = 1000, 100
KISHU_CELLS = 10
"""It keeps the whole frame after each."""
FRAME = """\
import numpy as np, pandas as pd
rng = np.random.default_rng(1)
frame = pd.DataFrame({f"c{n}": rng.random(1_250_000) for n in range(10)})
"""
COLUMN = "frame['c{column}'] = rng.random(1_250_000)"
KEPT = "print(*(lambda h: (len(h.points), h.kept))(__import__('replkernel').history()))"


def measure_undo() -> Result:
    """Undo of one changed element of a list beside an array of 1 GB, by us and by Kishu."""
    touch_memory()
    ours: list[float] = []
    with place() as here, kernel(OURS, here) as running:
        running.run(FILL)
        running.run("%replkernel sync")
        for number in range(1, ROUNDS + 1):
            running.run(CHANGE.format(number=number))
            running.run("%replkernel sync")
            before = _kept(running)[1]
            ours.append(running.run(UNDO) * MS)
            running.run(CHECK)
        kept = _kept(running)[1] - before
    kishu = _kishu_undo()
    times = kishu if isinstance(kishu, str) else kishu["undo"]
    theirs = [] if isinstance(times, str) else [row["seconds"] * MS for row in times]
    details: dict[str, Any] = {"bytes_of_a_point": kept, "least_ms": min(ours), "kishu": kishu}
    return Result("undo", "ms", ours, theirs, "at most 300 ms, nothing runs again; stock: Kishu", details)


def measure_points() -> Result:
    """Cells that each replace a column of 10 MB of a frame of 100 MB: what is kept for the past."""
    return _measure_points("history_kept", CELLS, LOOK_EVERY)


def measure_many_points() -> Result:
    """A thousand such cells: neither what is kept, nor memory, nor a cell's time goes on growing."""
    return _measure_points("history_kept_long", LONG_CELLS, LONG_LOOK_EVERY)


def _measure_points(name: str, cells: int, look_every: int) -> Result:
    touch_memory()
    looks: list[dict[str, float]] = []
    took: list[float] = []
    with place() as here:
        here.env["REPLKERNEL_STORE"] = f"file://{here.root / 'store'}"
        with kernel(OURS, here) as running:
            running.run(FRAME)
            running.run("%replkernel sync")
            for number in range(1, cells + 1):
                cell = running.run(COLUMN.format(column=number % 10))
                took.append((cell + running.run("%replkernel sync")) * MS)
                if not number % look_every:
                    looks.append(
                        {"cells": number, **_look(running), "cell_and_sync_ms": statistics.median(took)}
                    )
                    took.clear()
            undo = running.run(UNDO) * MS
    kishu_cells = [("frame", FRAME), *(("column", COLUMN.format(column=n)) for n in range(KISHU_CELLS))]
    details = {"looks": looks, "undo_of_a_column_ms": undo, "kishu": kishu(["cells"], kishu_cells)}
    goal = "10 MB a point, and no more than 256 MiB (REPLKERNEL_HISTORY_MIB)"
    return Result(name, "MiB", [look["mib"] for look in looks], [], goal, details)


def _look(running: Kernel) -> dict[str, float]:
    """Return what is kept, on disk and in all processes' memory (MiB)."""
    points, kept = _kept(running)
    disk = disk_bytes(running.where.root / "store")
    pss = pss_bytes(running.where.pids())
    return {"points": points, "mib": kept / MIB, "disk_mib": disk / MIB, "pss_mib": pss / MIB}


def _kept(running: Kernel) -> tuple[int, int]:
    """Return how many points there are, and what they take beyond the state of now."""
    points, kept = running.stream(KEPT)[1].split()
    return int(points), int(kept)


def _kishu_undo() -> dict[str, Any] | str:
    """Return what undoing took Kishu and what it kept of a change, or why it did not run."""
    cells = [("fill", FILL)]
    for number in range(1, KISHU_ROUNDS + 1):
        cells += [("change", CHANGE.format(number=number)), ("undo", "")]
    cells.append(("check", CHECK))
    found = kishu(["cells"], cells)
    return found if isinstance(found, str) else dict(found)


def kishu(words: list[str], work: Any) -> Any:
    """Return what Kishu's process makes of `work`, or why it did not get that far."""
    python = kishu_python()
    if not isinstance(python, Path):
        return python
    with tempfile.TemporaryDirectory(prefix="rkb-", dir="/tmp") as home:
        command = [str(python), str(HERE / "peer_kishu_back.py"), home, *words]
        try:
            done = subprocess.run(
                command, input=json.dumps(work), capture_output=True, text=True, timeout=RUN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"not done after {RUN_S:g} s"
    if done.returncode:
        return f"failed: {done.stderr.strip()[-1500:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])
