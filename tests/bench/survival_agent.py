"""The host agent is killed in the middle of a cell: it goes on, and is committed when the agent is back."""

from __future__ import annotations

import threading
import time

from replkernel.agent.io.lookup import find_agent
from replkernel.client.inquiry import agent_names
from tests.bench.kernels import kernel, place
from tests.bench.report import Result
from tests.bench.survival_cells import await_true, committed, kill, run, value, whole
from tests.support.stock import OURS

ROUNDS = 6
INTO_CELL_S = 0.5
CELL_S = 1.5


def measure() -> Result:
    """Time from the later one of the agent's return and the cell's end to the commit."""
    commits: list[float] = []
    returns: list[float] = []
    cells: list[float] = []
    with place() as here, kernel(OURS, here) as ours:
        value(ours, "import os, time; count = 0")
        counted = 2
        for number in range(1, ROUNDS + 1):
            pid = int(value(ours, "print(os.getpid())"))
            counted += 1
            await_true(lambda: whole(here), "three whole replicas")
            time.sleep(0.6)
            (name,) = agent_names(here.env)
            times: dict[str, float] = {}

            def strike(name: str = name, times: dict[str, float] = times) -> None:
                agent = find_agent(name, here.env)
                assert agent is not None
                kill(agent.pid)
                began = time.perf_counter()
                await_true(lambda: find_agent(name, here.env) is not None, "the agent's return")
                times["back"] = time.perf_counter()
                returns.append(times["back"] - began)

            striker = threading.Timer(INTO_CELL_S, strike)
            striker.daemon = True  # Where the measurement is ended first, no agent returns.
            striker.start()
            cell = run(ours, f"time.sleep({CELL_S}); count += 1; print(count, os.getpid())")
            ended = time.perf_counter()
            striker.join()
            counted += 1
            if cell.printed != f"{number} {pid}":
                raise RuntimeError(f"the cell did not go on: {cell}")
            await_true(lambda: committed(here, counted), "the commit")
            commits.append(time.perf_counter() - max(times["back"], ended))
            cells.append(cell.seconds)
    details = {"agent_back_after_s": returns, "cell_s": cells, "max_s": max(commits)}
    return Result("survival_agent", "s", commits, [], "committed within 3 s of the agent's return", details)
