"""Two or three of three replicas are killed, agents and processes: time until a cell has its state."""

from __future__ import annotations

import time

from tests.bench.kernels import Kernel, Place, kernel, place
from tests.bench.report import Result
from tests.bench.survival_cells import (
    await_true,
    committed,
    kill_host,
    processes_of,
    run,
    value,
    whole,
)
from tests.support.stock import OURS

ROUNDS = 5
LARGE_BYTES = 8 * 2**20
HOSTS = ("h1", "h2", "h3")
TRIES_MAX = 40
GROWN_UP_S = 3.2


def _round(ours: Kernel, here: Place, number: int, dead: int) -> tuple[float, int]:
    """Make state, kill, and run cells until one answers; return the seconds and how many were lost."""
    made = (
        f"small = {number}; large = os.urandom({LARGE_BYTES}); print(zlib.crc32(large), len(In), os.getpid())"
    )
    checksum, counted, pid = value(ours, made).split()
    await_true(lambda: committed(here, int(counted) - 1), "the commit")
    await_true(lambda: whole(here), "three whole replicas")
    time.sleep(GROWN_UP_S)
    executor = next(host for host in HOSTS if int(pid) in processes_of(host, here))
    victims = [executor, *(host for host in HOSTS if host != executor)][:dead]
    began = time.perf_counter()
    for victim in victims:
        kill_host(victim, here)
    lost = 0
    while (cell := run(ours, "print(small, zlib.crc32(large))")).status != "ok" and lost < TRIES_MAX:
        lost += 1
    took = time.perf_counter() - began
    if cell.printed != f"{number} {checksum}":
        raise RuntimeError(f"durable state is not there: {cell}, wanted {number} {checksum}")
    await_true(lambda: whole(here), "three whole replicas after a kill")
    return took, lost


def _measure(name: str, dead: int) -> Result:
    samples: list[float] = []
    lost: list[int] = []
    with place(REPLKERNEL_HOSTS=",".join(HOSTS)) as here, kernel(OURS, here) as ours:
        value(ours, "import os, zlib")
        for number in range(ROUNDS):
            took, cells = _round(ours, here, number, dead)
            samples.append(took)
            lost.append(cells)
    details = {"max_s": max(samples), "state_bytes": LARGE_BYTES, "cells_lost_meanwhile": lost}
    return Result(name, "s", samples, [], "at most 3 s + the time to read the state", details)


def measure_two() -> Result:
    """The executor's host and another one die at once."""
    return _measure("survival_two_of_three", 2)


def measure_all() -> Result:
    """All three hosts die at once."""
    return _measure("survival_three_of_three", 3)
