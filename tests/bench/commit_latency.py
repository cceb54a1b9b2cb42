"""How long a small delta takes to be committed by three replicas, as a cell with REPLKERNEL_DURABLE feels it.

Ours is each reply's time with `before_reply` less the median with `async`: it contains capturing the delta,
handing it to the keeper, the majority's commit and the way back, so the commit alone is shorter. A stock
kernel has none. The two kernels take turns in blocks, with a pause between: what one does after its replies
is not the other's delay.
"""

from __future__ import annotations

import statistics
import time

from tests.bench.kernels import Kernel, kernel, place
from tests.bench.report import Result, quantile
from tests.support.stock import OURS

ROUNDS = 30
EACH = 10
WARM_UP = 30
SETTLE_S = 0.2


def measure() -> Result:
    """Alternate between a kernel that waits for the commit and one that does not."""
    with (
        place(REPLKERNEL_DURABLE="before_reply") as here,
        place() as there,
        kernel(OURS, here) as waiting,
        kernel(OURS, there) as plain,
    ):
        samples: dict[Kernel, list[float]] = {waiting: [], plain: []}
        for number in range(WARM_UP):
            waiting.run(f"value = {number}")
            plain.run(f"value = {number}")
        for turn in range(ROUNDS):
            for running in (waiting, plain) if turn % 2 else (plain, waiting):
                time.sleep(SETTLE_S)
                for number in range(EACH):
                    samples[running].append(running.run(f"value = {number}") * 1000)
    base = statistics.median(samples[plain])
    ours = [max(0.0, took - base) for took in samples[waiting]]
    replies = {
        name: {f"p{percent}": quantile(taken, percent) for percent in (50, 95, 99)}
        for name, taken in (("before_reply_ms", samples[waiting]), ("async_ms", samples[plain]))
    }
    return Result("commit_latency", "ms", ours, [], "p50 at most 3 ms, p99 at most 15 ms", replies)
