"""What a notebook that nobody uses costs in memory (PSS, all its processes), beside many others of its kind.

Each has run one cell. First all replicas have processes, then the standbys are dormant; agent and zygote are
shared among all and counted. `IDLE_NOTEBOOKS` says how many there are. Stock is one process each.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench.kernels import Place, kernel, place, pss_bytes
from tests.bench.report import Result
from tests.support.stock import OURS, STOCK

NOTEBOOKS = int(os.environ.get("IDLE_NOTEBOOKS", "60"))
STOCK_NOTEBOOKS = 3
CELL = "x = 1"
MIB = 2**20
STANDBYS_GO_S = 120.0
SETTLE_S = 10.0


def _mib_each(where: Place, notebooks: int) -> float:
    return pss_bytes(where.pids()) / MIB / notebooks


def _by_kind(where: Place) -> dict[str, dict[str, float]]:
    """Return how many processes there are of each kind, and their mean PSS in MiB."""
    kinds: dict[str, list[float]] = {}
    for pid in where.pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        kind = "router" if b"router" in command else "agent" if b"agent" in command else "kernel process"
        kinds.setdefault(kind, []).append(pss_bytes([pid]) / MIB)
    return {kind: {"processes": len(each), "mib": sum(each) / len(each)} for kind, each in kinds.items()}


def measure() -> Result:
    """Start them one after the other, and look before and after the standbys' processes have ended."""
    idle_s = 3.0 * NOTEBOOKS  # None of them rests before all have started.
    with ExitStack() as stack:
        there = stack.enter_context(place())
        for _ in range(STOCK_NOTEBOOKS):
            stack.enter_context(kernel(STOCK, there)).run(CELL)
        stock = _mib_each(there, STOCK_NOTEBOOKS)
    with ExitStack() as stack:
        here = stack.enter_context(place(REPLKERNEL_STANDBY_IDLE_S=str(idle_s)))
        for _ in range(NOTEBOOKS):
            stack.enter_context(kernel(OURS, here)).run(CELL)
        time.sleep(SETTLE_S)
        awake, processes = _mib_each(here, NOTEBOOKS), len(here.pids())
        before = _by_kind(here)
        deadline = time.monotonic() + idle_s + STANDBYS_GO_S
        while len(here.pids()) > processes - 2 * NOTEBOOKS and time.monotonic() < deadline:
            time.sleep(1.0)
        dormant = _mib_each(here, NOTEBOOKS)
        details = {
            "notebooks": NOTEBOOKS,
            "with_standbys_mib": awake,
            "with_standbys": before,
            "dormant": _by_kind(here),
            "processes": [processes, len(here.pids())],
        }
    return Result("idle_notebooks", "MiB", [dormant], [stock], "at most 40 MiB", details)
