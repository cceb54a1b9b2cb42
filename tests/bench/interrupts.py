"""How long cells go on after an interrupt, each of which is busy in another way; beside the stock kernel."""

from __future__ import annotations

import contextlib
import queue
import statistics
import time

from tests.bench.kernels import Kernel, side_by_side
from tests.bench.report import Result
from tests.support.stuck_cells import ENDING, GO

LIMIT_S = 60.0
SHORT = "asyncio.sleep(10)"
"""Stock ends what awaits something only when that comes by itself."""
BEFORE_S = 0.3
GO_S = 5.0
ROUNDS = 3
LONG_S = 2.0


def measure() -> Result:
    """Interrupt each cell on both kernels, by turns; samples are medians of seconds to the reply.

    What goes on for long is measured once.
    """
    with side_by_side() as (ours, stock):
        cells = {name: cell.replace("asyncio.sleep(60)", SHORT) for name, cell in ENDING.items()}
        seconds = {name: _medians(ours, stock, cell) for name, cell in cells.items()}
    slower = [name for name, (mine, theirs) in seconds.items() if theirs <= 0.3 < mine]
    details = {
        "seconds": {name: {"ours": mine, "stock": theirs} for name, (mine, theirs) in seconds.items()},
        "over 0.3 s where stock is not": slower,
    }
    mine, theirs = zip(*seconds.values(), strict=True)
    return Result("interrupts", "s", mine, theirs, "at most 0.3 s wherever stock takes no longer", details)


def _medians(ours: Kernel, stock: Kernel, cell: str) -> tuple[float, float]:
    taken = [(_seconds(ours, cell), _seconds(stock, cell))]
    while len(taken) < ROUNDS and max(taken[0]) < LONG_S:
        taken.append((_seconds(ours, cell), _seconds(stock, cell)))
    mine, theirs = zip(*taken, strict=True)
    return statistics.median(mine), statistics.median(theirs)


def _seconds(kernel: Kernel, cell: str) -> float:
    request = kernel.client.execute(cell, allow_stdin=True, stop_on_error=False)
    text, sent = "", time.perf_counter()
    # Of stock, what a cell prints before C code keeps the interpreter's lock may come when that is over.
    while GO not in text and time.perf_counter() < sent + GO_S:
        with contextlib.suppress(queue.Empty):
            text += kernel.client.get_iopub_msg(timeout=0.2)["content"].get("text", "")
    time.sleep(BEFORE_S)
    began = time.perf_counter()
    kernel.manager.interrupt_kernel()
    while time.perf_counter() < began + LIMIT_S:
        with contextlib.suppress(queue.Empty):
            message = kernel.client.get_shell_msg(timeout=1.0)
            if message["parent_header"].get("msg_id") == request:
                took = time.perf_counter() - began
                _clear(kernel)
                return took
    raise TimeoutError(f"{cell!r} did not end within {LIMIT_S:g} s of its interrupt")


def _clear(kernel: Kernel) -> None:
    """Leave nothing that a cell has asked or said to be taken for the next one's."""
    time.sleep(BEFORE_S)
    for channel in (kernel.client.stdin_channel, kernel.client.iopub_channel):
        while channel.socket.poll(0):
            channel.get_msg(timeout=1)
