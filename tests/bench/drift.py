"""Whether a notebook gets slower or larger with age: thousands of tiny cells, the first against the last.

The state stays as large as it is, or a dictionary grows with the cells. Stock drifts a little as well, for In
and Out grow, so its ratio is told beside ours.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.kernels import TICKS, Kernel, Place, cpu_s, side_by_side
from tests.bench.report import Result

QUICK_CELLS = 2_000
LONG_CELLS = 20_000
WARM_UP_CELLS = 50
SIDE_CELLS = 200
"""So many cells are the first, and so many the last."""

PARTS = 10
"""The run is looked at so many times."""

SETUP = "d = {}; xs = []"
CONSTANT = "x = {number}; d['k'] = x"
GROWING = "x = {number}; d[x] = x"
MS, MB = 1e3, 1e6


def measure() -> Result:
    """2,000 cells, the state constant."""
    return run("drift", CONSTANT, QUICK_CELLS)


def measure_growing() -> Result:
    """2,000 cells, a dictionary grows by an entry in each."""
    return run("drift_growing", GROWING, QUICK_CELLS)


def measure_long() -> Result:
    """20,000 cells, the state constant."""
    return run("drift_long", CONSTANT, LONG_CELLS)


def run(name: str, cell: str, cells: int) -> Result:
    """Run `cells` cells on both kernels by turns; the samples are the last replies of each."""
    with side_by_side() as (ours, stock):
        for running in (ours, stock):
            running.run(SETUP)
            for number in range(WARM_UP_CELLS):
                running.run(cell.format(number=number))
        sides = _Side(ours), _Side(stock)
        for number in range(cells):
            for side in sides:
                side.run(cell.format(number=WARM_UP_CELLS + number))
            if not (number + 1) % (cells // PARTS):
                for side in sides:
                    side.look()
        details = {
            "cells": cells,
            "ours": sides[0].summary(),
            "stock": sides[1].summary(),
            "cpu_ratio": sides[0].cpu_s() / sides[1].cpu_s(),
        }
        last = [[took * MS for took in side.replies[-SIDE_CELLS:]] for side in sides]
    return Result(name, "ms", last[0], last[1], "last/first at most 1.1; agent flat, disk bounded", details)


class _Side:
    """One kernel with what was seen of it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._where: Place = kernel.where
        self._pids = self._where.pids()
        self._began_s = cpu_s(self._pids)
        self.replies: list[float] = []
        self._looks: list[dict[str, Any]] = []

    def run(self, code: str) -> None:
        self.replies.append(self._kernel.run(code))

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes since the beginning."""
        return cpu_s(self._pids) - self._began_s

    def look(self) -> None:
        """Note how things are."""
        self._looks.append(
            {
                "cells": len(self.replies),
                "reply_ms": statistics.median(self.replies[-SIDE_CELLS:]) * MS,
                "cpu_s": self.cpu_s(),
                "disk_mb": disk_bytes(self._where.root) / MB,
                "rss_mb": rss_of(self._pids),
            }
        )

    def summary(self) -> dict[str, Any]:
        """Return the first and last replies' medians, and the looks."""
        first = statistics.median(self.replies[:SIDE_CELLS])
        last = statistics.median(self.replies[-SIDE_CELLS:])
        return {
            "first_ms": first * MS,
            "last_ms": last * MS,
            "last_to_first": last / first,
            "looks": self._looks,
        }


def disk_bytes(root: Path) -> int:
    """Return the bytes that the files below `root` take on disk, each inode once."""
    seen: dict[int, int] = {}
    for path in root.rglob("*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            seen[found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def rss_of(pids: list[int]) -> dict[str, float]:
    """Return the resident memory of processes in MB, by what they are and their pid."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            what = " ".join(word for word in words if word.startswith(("replkernel", "ipykernel")))[:40]
            found[f"{what or words[0]} {pid}"] = pages * os.sysconf("SC_PAGE_SIZE") / MB
    return found


def main() -> None:
    """`python -m tests.bench.drift [CELLS] [growing]`: one run, its looks printed."""
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else QUICK_CELLS
    began = time.perf_counter()
    result = run("drift", GROWING if "growing" in sys.argv else CONSTANT, cells)
    for who in ("ours", "stock"):
        summary = result.details[who]
        for look in summary.pop("looks"):
            print(who, {key: round(v, 2) if isinstance(v, float) else v for key, v in look.items()})
        print(who, summary)
    print("cpu ratio", result.details["cpu_ratio"], "took", time.perf_counter() - began, "ticks", TICKS)


if __name__ == "__main__":
    main()
