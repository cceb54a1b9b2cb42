"""Millions of small objects, and one element changed in what is large: beside stock in one run.

Cells come every 0.4 s, as those of a person in a hurry, or one behind the other, as those of *Run All*: what
follows a cell is in the way of the next.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from tests.bench.kernels import Kernel, cpu_s, side_by_side
from tests.bench.report import Result

PERIOD_S = 0.4
MINUTE_S = 60.0
WARM_UP = 3
MS = 1e3

DICTS = "rows = [{{'a': i, 'b': str(i)}} for i in range({count})]"
CHANGE = "rows[{number}]['a'] += 1"
SUM = "sum(d['a'] for d in rows)"
FRAME = """\
import numpy as np, pandas as pd
df = pd.DataFrame(np.zeros(({rows}, 20)), columns=[f"c{{i}}" for i in range(20)])
"""
ARRAY = "import numpy as np\narr = np.zeros(40_000_000)"
LARGE_CELLS = {
    "df.loc": 'df.loc[{number}, "c3"] = {number}',
    "print(df.shape)": "print(df.shape)",
    "arr[…]": "arr[{number}] = {number}",
}


def measure() -> Result:
    """200,000 dicts, half a minute."""
    return run_objects("many_objects", 200_000, MINUTE_S / 2)


def measure_long() -> Result:
    """1.5 million dicts, a minute idle and a minute with changes."""
    return run_objects("many_objects_long", 1_500_000, MINUTE_S)


def measure_large() -> Result:
    """One element of a frame of 400 MB and of an array of 320 MB."""
    return run_large("large_elements", 2_500_000)


def measure_large_long() -> Result:
    """One element of a frame of 1.6 GB and of an array of 320 MB."""
    return run_large("large_elements_long", 10_000_000)


def run_objects(name: str, count: int, watched_s: float) -> Result:
    """Change one dict of `count` every 0.4 s; the samples are the replies."""
    with side_by_side() as (ours, stock):
        sides = _Side(ours), _Side(stock)
        for side in sides:
            side.run(DICTS.format(count=count))
        for side in sides:
            side.settle(watched_s / 4)
        details: dict[str, Any] = {"idle_cpu": [_share(side, watched_s / 2) for side in sides]}
        replies, shares = [], []
        for side in sides:  # One after the other: beside another kernel's audit neither has its own pace.
            before, began = side.cpu_s(), time.perf_counter()
            replies.append(side.paced(CHANGE, watched_s))
            shares.append((side.cpu_s() - before) / (time.perf_counter() - began))
        details["cpu"] = shares
        sums = [[took * MS for took in side.paced(SUM, 6 * PERIOD_S)] for side in sides]
        details["sum_ms"] = [statistics.median(times) for times in sums]
        details["sum_ratio"] = details["sum_ms"][0] / details["sum_ms"][1]
    samples = [[took * MS for took in times] for times in replies]
    return Result(name, "ms", samples[0], samples[1], "reply and sum at most 1.5; cpu at most 0.2", details)


def run_large(name: str, rows: int) -> Result:
    """Change one element every 0.4 s, then in one cell behind the other; the samples are the frame's."""
    with side_by_side() as (ours, stock):
        sides = _Side(ours), _Side(stock)
        for side in sides:
            side.run(FRAME.format(rows=rows))
            side.run(ARRAY)
        for side in sides:
            side.settle(5.0)
        details: dict[str, Any] = {}
        for key, cell in LARGE_CELLS.items():
            for how, period_s, for_s in (("", PERIOD_S, 12 * PERIOD_S), (" at once", 0.0, 3.0)):
                times = [
                    [took * MS for took in side.paced(cell, for_s, period_s)][WARM_UP:] for side in sides
                ]
                ours_ms, stock_ms = map(statistics.median, times)
                details[key + how] = {"ours_ms": ours_ms, "stock_ms": stock_ms, "ratio": ours_ms / stock_ms}
                if key + how == "df.loc":
                    samples = times
    return Result(name, "ms", samples[0], samples[1], "at most 1.5 each", details)


class _Side:
    """One kernel, and the processor's time of all its processes."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.run = kernel.run

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes."""
        return cpu_s(self._kernel.where.pids())

    def settle(self, seconds: float) -> None:
        """Leave the kernel alone until it has checked what it made."""
        time.sleep(seconds)

    def paced(self, cell: str, seconds: float, period_s: float = PERIOD_S) -> list[float]:
        """Run a cell every `period_s` for so long; return how long the replies took."""
        replies: list[float] = []
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            replies.append(self.run(cell.format(number=5 + len(replies))))
            time.sleep(max(0.0, period_s - (time.perf_counter() - now)))
        return replies


def _share(side: _Side, seconds: float) -> float:
    before = side.cpu_s()
    time.sleep(seconds)
    return (side.cpu_s() - before) / seconds


def main() -> None:
    """`python -m tests.bench.many_objects large|objects [COUNT] [SECONDS]`."""
    what, count = sys.argv[1], int(sys.argv[2])
    if what == "large":
        result = run_large("large_elements", count)
    else:
        result = run_objects("many_objects", count, float(sys.argv[3]))
    document = result.document()
    print({key: document[key] for key in ("ours", "stock", "ratio", "p95")})
    for key, value in result.details.items():
        print(key, value)


if __name__ == "__main__":
    main()
