"""How long small cells take beside a graph of millions of Python objects: the capture must not be felt.

Half of the cells follow each other at once, half come after pauses in which the graph is being checked.
"""

from __future__ import annotations

import random
import time

from tests.bench.kernels import Kernel, side_by_side
from tests.bench.report import Result, quantile

OBJECTS = 3_000_000
CELLS = 40
PAUSE_MAX_S = 0.6


def measure() -> Result:
    """Alternate between both kernels, so that what else the machine does meets both."""
    pauses = random.Random(1)
    with side_by_side() as (ours, stock):
        for kernel in (ours, stock):
            kernel.run("x = 0")
            kernel.run(f"big = [[i] for i in range({OBJECTS})]")
        at_once: dict[Kernel, list[float]] = {ours: [], stock: []}
        paused: dict[Kernel, list[float]] = {ours: [], stock: []}
        for number in range(CELLS):
            for kernel, taken in at_once.items():
                taken.append(kernel.run(f"x = {number}") * 1000)
        for number in range(CELLS):
            time.sleep(pauses.uniform(0, PAUSE_MAX_S))
            for kernel, taken in paused.items():
                taken.append(kernel.run(f"x = {number}") * 1000)
        _, table = ours.stream("%replkernel state")
    details = {
        "objects": 2 * OBJECTS,
        "at once p50, p99 (ours)": [quantile(at_once[ours], 50), quantile(at_once[ours], 99)],
        "after pauses p50, p99 (ours)": [quantile(paused[ours], 50), quantile(paused[ours], 99)],
        "state": [line for line in table.splitlines() if line.startswith("big")],
    }
    goal = "no cell waits for the graph: p99 at most stock + 100 ms"
    samples = {kernel: at_once[kernel] + paused[kernel] for kernel in (ours, stock)}
    return Result("state_budget", "ms", samples[ours], samples[stock], goal, details)
