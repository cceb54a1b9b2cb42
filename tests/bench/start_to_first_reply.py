"""From launching the kernel's process to its first execute_reply, cold (no agent) and warm (zygote alive).

Both kernels are launched as clients do, through jupyter_client; the request is sent once the port is open.
"""

from __future__ import annotations

import time

from tests.bench.kernels import Place, kernel, place
from tests.bench.report import Result
from tests.support.stock import OURS, STOCK

ROUNDS = 7
ZYGOTE_S = 3.0


def _start(name: str, where: Place) -> dict[str, float]:
    with kernel(name, where) as running:
        return running.started_s


def measure_cold() -> Result:
    """Every launch of ours finds no agent."""
    ours: list[dict[str, float]] = []
    stock: list[dict[str, float]] = []
    with place() as there:
        for _ in range(ROUNDS):
            with place() as here:
                ours.append(_start(OURS, here))
            stock.append(_start(STOCK, there))
    return _result("start_cold", ours, stock, "at most 1.5 x stock")


def measure_warm() -> Result:
    """Every launch of ours finds the agent and its zygote, kept by a kernel that runs already."""
    ours: list[dict[str, float]] = []
    stock: list[dict[str, float]] = []
    with place() as here, place() as there, kernel(OURS, here):
        time.sleep(ZYGOTE_S)
        for _ in range(ROUNDS):
            ours.append(_start(OURS, here))
            stock.append(_start(STOCK, there))
            time.sleep(0.5)
    return _result("start_warm", ours, stock, "at most 0.6 x stock")


def _result(name: str, ours: list[dict[str, float]], stock: list[dict[str, float]], goal: str) -> Result:
    info = {"ours": [start["info"] for start in ours], "stock": [start["info"] for start in stock]}
    first = [start["reply"] for start in ours], [start["reply"] for start in stock]
    return Result(name, "s", *first, goal, {"kernel_info_s": info})
