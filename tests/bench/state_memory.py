"""What capture costs in memory: the kernel process's RSS after re-bindings, its peak above the namespace.

The peak is counted by the system from the end of the cell that made the state until that state is durable.
"""

from __future__ import annotations

import json
from typing import Any

from tests.bench.kernels import Kernel, kernel, place
from tests.bench.report import Result
from tests.bench.state_kernels import watched
from tests.bench.state_probe import PRINT_PEAK, RESET_PEAK
from tests.support.stock import STOCK

MIB = 2**20
REBIND = "new = np.random.default_rng({number}).random(12_500_000)"
REBINDINGS = 5
LARGE = {
    "array of 500 MB": "big = np.random.default_rng(0).random(62_500_000)",
    "500 MB of bytes": "big = np.random.default_rng(0).bytes(500_000_000)",
    "500 MB of text": "big = 'a line of text, ' * 31_250_000",
    "a million small lists": "big = [[number, str(number)] for number in range(1_000_000)]",
}


def measure_rebinding() -> Result:
    """Bind a new array of 100 MB to one name, once and five times."""
    with watched() as ours, place() as there, kernel(STOCK, there) as stock:
        details: dict[str, Any] = {"ours": {}, "stock": {}}
        for running in (ours.kernel, stock):
            running.run("import numpy as np")
        for number in range(1, REBINDINGS + 1):
            ours.run(REBIND.format(number=number))
            stock.run(REBIND.format(number=number))
            if number in (1, REBINDINGS):
                details["ours"][number] = _now(ours.kernel) / MIB
                details["stock"][number] = _now(stock) / MIB
    grown = {name: rss[REBINDINGS] - rss[1] for name, rss in details.items()}
    return Result(
        "state_rebinding", "MiB", [grown["ours"]], [grown["stock"]], "RSS after five as after one", details
    )


def measure_peak() -> Result:
    """Capture 500 MB of each kind: the largest RSS until it is durable, above RSS with the state in place."""
    peaks = {}
    for name, code in LARGE.items():
        with watched() as ours:
            ours.run("import numpy as np\nimport gc")
            ours.run(f"{code}\n{RESET_PEAK}")
            ours.run("pass")
            found = _peak(ours.kernel)
            peaks[name] = (found["largest"] - found["before"]) / MIB
    samples = [peaks["array of 500 MB"]]
    return Result("state_peak", "MiB", samples, [], "one window of chunks (32 MiB)", {"peak_mib": peaks})


def _now(running: Kernel) -> float:
    return float(_peak(running)["now"])


def _peak(running: Kernel) -> dict[str, float]:
    _, text = running.stream(PRINT_PEAK)
    found: dict[str, float] = json.loads(text)
    return found
