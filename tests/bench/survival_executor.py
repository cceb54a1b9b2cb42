"""The executor's kernel process is killed outright: in the middle of a cell, and while it is idle."""

from __future__ import annotations

import threading
import time

from tests.bench.kernels import Kernel, Place, kernel, place
from tests.bench.report import Result, quantile
from tests.bench.survival_cells import await_true, kill, run, value, whole
from tests.support.stock import OURS

ROUNDS = 8
KILLS = 24
INTO_CELL_S = 1.0
COMMITTED_S = 0.6
GROWN_UP_S = 3.2
"""A process that dies earlier than this counts as one that cannot live."""
PID = "import os; print(os.getpid())"


def measure_mid_cell() -> Result:
    """Time from the kill to the error in the cell, and then to the next cell's reply."""
    errors: list[float] = []
    after: list[float] = []
    reasons = set()
    with place() as here, kernel(OURS, here) as ours:
        for number in range(1, ROUNDS + 1):
            pid = int(value(ours, f"count = {number}; {PID}"))
            await_true(lambda: whole(here), "three whole replicas")
            time.sleep(COMMITTED_S)
            killed: list[float] = []

            def strike(pid: int = pid, killed: list[float] = killed) -> None:
                killed.append(time.perf_counter())
                kill(pid)

            timer = threading.Timer(INTO_CELL_S, strike)
            timer.start()
            cell = run(ours, "import time; time.sleep(30); count = -1")
            ended = time.perf_counter()
            timer.join()
            errors.append(ended - killed[0])
            reasons.add(cell.error)
            following = run(ours, "print(count)")
            if cell.status != "error" or following.printed != str(number):
                raise RuntimeError(f"a kill in a cell went wrong: {cell} {following}")
            after.append(following.seconds)
    details = {
        "next_cell_s": {"p50": quantile(after, 50), "max": max(after), "goal": "at most 1 s"},
        "error_max_s": max(errors),
        "errors": sorted(reasons),
    }
    return Result(
        "survival_mid_cell", "s", errors, [], "error within 1 s, next cell within 1 s more", details
    )


def measure_idle() -> Result:
    """Delay of a cell that is sent right after its executor was killed; the state must be there."""
    delays: list[float] = []
    usual: list[float] = []
    lost = 0
    with place() as here, kernel(OURS, here) as ours:
        value(ours, "count = 0")
        for _ in range(KILLS):
            pid = int(value(ours, PID))
            await_true(lambda: whole(here), "three whole replicas")
            time.sleep(COMMITTED_S)
            before = int(value(ours, "print(count)"))
            usual.append(run(ours, "pass").seconds)
            time.sleep(GROWN_UP_S)
            lost += _strike(ours, here, pid, before, delays)
    details = {
        "p50_s": quantile(delays, 50),
        "p95_s": quantile(delays, 95),
        "max_s": max(delays),
        "kills": KILLS,
        "cells_lost": lost,
        "usual_cell_s": quantile(usual, 50),
    }
    return Result("survival_idle", "s", delays, [], "p95 at most 0.7 s", details)


def _strike(ours: Kernel, here: Place, pid: int, before: int, delays: list[float]) -> int:
    """Kill the idle executor and send a cell at once; return whether that cell was lost."""
    began = time.perf_counter()
    kill(pid)
    cell = run(ours, "count += 1; print(count)")
    delays.append(time.perf_counter() - began)
    if cell.status == "ok" and cell.printed != str(before + 1):
        raise RuntimeError(f"the state is wrong after a kill: {cell}")
    return int(cell.status != "ok")
