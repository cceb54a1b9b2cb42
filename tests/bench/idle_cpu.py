"""What an idle kernel costs: the CPU of all its processes, in percent of one core."""

from __future__ import annotations

import time

from tests.bench.kernels import cpu_s, kernel, place
from tests.bench.report import Result
from tests.support.stock import OURS, STOCK

SETTLE_S = 10.0
WATCH_S = 20.0


def measure() -> Result:
    """Watch one three-replica kernel and one stock kernel at the same time, after one cell each."""
    with place() as here, place() as there, kernel(OURS, here) as ours, kernel(STOCK, there) as stock:
        ours.run("values = list(range(1000))")
        stock.run("values = list(range(1000))")
        time.sleep(SETTLE_S)
        pids = here.pids(), there.pids()
        before = [cpu_s(group) for group in pids]
        time.sleep(WATCH_S)
        percent = [100 * (cpu_s(group) - was) / WATCH_S for group, was in zip(pids, before, strict=True)]
    details = {"processes": {"ours": len(pids[0]), "stock": len(pids[1])}, "watched_s": WATCH_S}
    return Result("idle_cpu", "% core", [percent[0]], [percent[1]], "at most 0.5 % of a core", details)
