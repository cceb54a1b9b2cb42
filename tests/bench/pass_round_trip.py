"""How long `pass` takes from the request to its reply, in turns with the stock kernel."""

from __future__ import annotations

from tests.bench.kernels import Kernel, side_by_side
from tests.bench.report import Result

ROUNDS = 30
EACH = 20
WARM_UP = 30


def measure() -> Result:
    """Alternate between both kernels, so that what else the machine does meets both."""
    with side_by_side() as (ours, stock):
        for _ in range(WARM_UP):
            ours.run("pass")
            stock.run("pass")
        samples: dict[Kernel, list[float]] = {ours: [], stock: []}
        for _ in range(ROUNDS):
            for kernel, taken in samples.items():
                taken.extend(kernel.run("pass") * 1000 for _ in range(EACH))
    goal = "p50 at most 1.25 x stock, p99 at most stock + 5 ms"
    return Result("pass_round_trip", "ms", samples[ours], samples[stock], goal)
