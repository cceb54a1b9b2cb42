"""The part of `far_replicas` that runs on the router's machine: cells, timed whenever a line asks for them.

It answers each line on standard input with a line of JSON: milliseconds by cell and kernel.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.bench.kernels import Kernel, Place
from tests.support.stock import OURS, STOCK

EACH = 20
WARM_UP = 20
CELLS = {
    "pass": "pass",
    "small": "rows.append(len(rows))",
    "array": "view[:1000] += 1; total = float(view.sum())",
}
SETUP = "import numpy; rows = []; view = numpy.zeros(250_000); total = 0.0"


class Here(Place):
    """The environment that this process was given."""

    def __init__(self) -> None:
        self.env = dict(os.environ)
        self.root = Path(tempfile.mkdtemp(prefix="rkb-", dir="/tmp"))


def main() -> None:
    """Serve until standard input ends."""
    kernels: dict[str, Kernel] = {"stock": Kernel(STOCK, Here())}
    for durable in ("async", "before_reply"):
        place = Here()
        place.env["REPLKERNEL_DURABLE"] = durable
        kernels[durable] = Kernel(OURS, place)
    for kernel in kernels.values():
        kernel.run(SETUP)
        for _ in range(WARM_UP):
            for code in CELLS.values():
                kernel.run(code)
    print("ready", flush=True)
    for _word in sys.stdin:
        taken = {
            f"{name}/{cell}": [kernel.run(code) * 1000 for _ in range(EACH)]
            for cell, code in CELLS.items()
            for name, kernel in kernels.items()
        }
        where = kernels["async"].stream("import socket; print(socket.gethostname())")[1].strip()
        print(json.dumps({"where": where, "taken": taken}), flush=True)
    for kernel in kernels.values():
        kernel.close()


if __name__ == "__main__":
    main()
