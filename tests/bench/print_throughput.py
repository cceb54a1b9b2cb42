"""How many printed lines a second reach the client, for 20,000 lines from one cell."""

from __future__ import annotations

from tests.bench.kernels import Kernel, side_by_side
from tests.bench.report import Result

LINES = 20_000
ROUNDS = 5
CODE = f"for number in range({LINES}):\n    print(number, 'a line of ordinary length, as loops print them')"


def measure() -> Result:
    """Alternate between both kernels; every line must arrive."""
    with side_by_side() as (ours, stock):
        samples: dict[Kernel, list[float]] = {ours: [], stock: []}
        for _ in range(ROUNDS):
            for kernel, taken in samples.items():
                seconds, text = kernel.stream(CODE)
                if text.count("\n") != LINES:
                    raise RuntimeError(f"{text.count(chr(10))} of {LINES} lines arrived")
                taken.append(LINES / seconds)
    return Result("print_throughput", "lines/s", samples[ours], samples[stock], "at least 0.8 x stock")
