"""A 1 GB namespace in a process that has none of it: when does a cell start that needs one small variable?

The executor is killed, so that a standby takes over with all large variables still to be restored. The peer
is a stock kernel that loads the same variables from one pickle on the same disk. Times are of one machine.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path

from tests.bench.kernels import Kernel, side_by_side
from tests.bench.report import Result

ROUNDS = 4
SETTLE_S = 3.0
ARRAYS = 10
ARRAY_ITEMS = 13_421_773
BYTES = ARRAYS * ARRAY_ITEMS * 8
MAKE = f"""\
import os, pickle, time
import numpy as np
for _n in range({ARRAYS}): globals()[f"a{{_n}}"] = np.random.default_rng(_n).random({ARRAY_ITEMS})
for _n in range(500): globals()[f"s{{_n}}"] = [_n, str(_n)]
def reach(): return a3[0]
small = [1]
"""
SAVE = """\
_names = [n for n in globals() if n[0] in "as" and n[1:].isdigit()]
with open({path!r}, "wb") as _file:
    pickle.dump({{n: globals()[n] for n in _names}}, _file, 5)
"""
LOAD = """\
with open({path!r}, "rb") as _file: globals().update(pickle.load(_file))
"""
START = "print(time.time()); small.append(1)"
ONE = "print(time.time()); reach()"
ALL = "print(time.time()); len([n for n in globals() if n[0] == 'a'])"


def measure() -> Result:
    """Kill the executor again and again; time the first cells after it."""
    starts, ends, ones, wholes, loads = [], [], [], [], []
    with side_by_side() as (ours, stock):
        path = str(Path(ours.manager.connection_file).with_suffix(".pickle"))
        ours.run(MAKE)
        stock.run(MAKE)
        stock.run(SAVE.format(path=path))
        names = "[n for n in list(globals()) if n[0] in 'as' and n[1:].isdigit()]"
        for _ in range(ROUNDS):
            _replace(ours)
            started, ended = _timed(ours, START)
            starts.append(started)
            ends.append(ended)
            ones.append(_timed(ours, ONE)[1])
            _replace(ours)
            wholes.append(_timed(ours, ALL)[0])
            stock.run(f"for _n in {names}: del globals()[_n]")
            loads.append(stock.run(LOAD.format(path=path)))
        Path(path).unlink()
    return Result(
        "state_restore",
        "s",
        starts,
        loads,
        "a cell that needs one small variable of 1 GB starts within 0.3 s",
        {
            "first_cell_ends_s": ends,
            "next_cell_with_100_MB_ends_s": ones,
            "cell_with_everything_starts_s": wholes,
            "everything_MB_per_s": BYTES / 1e6 / statistics.median(wholes),
        },
    )


def _replace(kernel: Kernel) -> None:
    """Kill the process that runs the cells, once its state is durable; its place is taken by a standby."""
    time.sleep(SETTLE_S)
    pid = int(kernel.stream("print(os.getpid())")[1].split()[-1])
    time.sleep(SETTLE_S)
    os.kill(pid, signal.SIGKILL)
    time.sleep(SETTLE_S)


def _timed(kernel: Kernel, code: str) -> tuple[float, float]:
    """Return the seconds from the request to the cell's first statement, and to its end."""
    began = time.time()
    _, text = kernel.stream(code)
    ended = time.time()
    stamp = next(float(word) for word in reversed(text.split()) if word.replace(".", "", 1).isdigit())
    return stamp - began, ended - began
