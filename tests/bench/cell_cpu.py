"""What a cell costs in CPU time, by process: user and system, beside a stock kernel's.

Cells come one right after the other, or with pauses, in which a capture has time for all that there is.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.bench.kernels import Kernel, cpu_s, side_by_side
from tests.bench.report import Result

CELLS = 500
FIRST_CELLS = 60
PAUSE_S = 0.1
QUIET_S = 5.0

VARIABLES = """
import numpy as np, pandas as pd
for i in range(60): globals()[f'number{i}'] = i * 1.5
for i in range(40): globals()[f'text{i}'] = f'text {i}'
for i in range(40): globals()[f'list{i}'] = [i, str(i), {'a': i}]
for i in range(30): globals()[f'dict{i}'] = {str(key): [key, key + 1] for key in range(20)}
for i in range(10): globals()[f'array{i}'] = np.arange(1000 * (i + 1))
for i in range(15): exec(f'def f{i}(a, b=2): return a + b + number{i}')
class Point:
    def __init__(self, x): self.x = x
for i in range(4): globals()[f'point{i}'] = Point(i)
df = pd.DataFrame({'a': np.arange(10000), 'b': np.random.rand(10000), 'c': [str(i) for i in range(10000)]})
"""
"""Two hundred ordinary variables."""


def measure() -> Result:
    """Run cells that assign one number in a notebook that has nothing else."""
    return _measured("cell_cpu", "", 0.0)


def measure_variables() -> Result:
    """Run such cells, with pauses, in a notebook of two hundred variables."""
    return _measured("cell_cpu_variables", VARIABLES, PAUSE_S)


def roles(kernel: Kernel) -> dict[int, str]:
    """Return what each process of a kernel of ours does, by pid."""
    executor = int(kernel.stream("import os; print(os.getpid())")[1])
    found = {}
    for pid in kernel.where.pids():
        words = Path(f"/proc/{pid}/cmdline").read_text()
        forks = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if pid == executor:
            found[pid] = "executor"
        elif "replkernel.router" in words:
            found[pid] = "router"
        elif "zygote" in words:
            found[pid] = "zygote" if forks else "standby"
        else:
            found[pid] = "agent"
    return found


def _measured(name: str, setup: str, pause_s: float) -> Result:
    with side_by_side() as kernels:
        for kernel in kernels:
            kernel.run(setup or "pass")
            for _ in range(FIRST_CELLS):
                kernel.run("x = 1")
        ours, stock = kernels
        known = roles(ours)
        time.sleep(QUIET_S)
        spent = {role: -cpu_s(_those(known, role)) for role in set(known.values())}
        stock_s = -cpu_s(stock.where.pids())
        for _ in range(CELLS):
            for kernel in kernels:
                kernel.run("x = 1")
            time.sleep(pause_s)
        for role in spent:
            spent[role] += cpu_s(_those(known, role))
        stock_s += cpu_s(stock.where.pids())
    by_role = {role: 1000 * seconds / CELLS for role, seconds in sorted(spent.items())}
    details = {"ms": by_role, "cells": CELLS, "pause_s": pause_s}
    return Result(name, "ms", [sum(by_role.values())], [1000 * stock_s / CELLS], "to be known", details)


def _those(known: dict[int, str], role: str) -> list[int]:
    return [pid for pid, other in known.items() if other == role]
