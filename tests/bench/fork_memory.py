"""Eight forks of a kernel with an array of 1 GB, on one machine: their first cells, and what they take."""

from __future__ import annotations

import contextlib
import time

from replkernel.carrying.forking import fork_kernel
from tests.bench.kernels import Kernel, kernel, place, pss_bytes
from tests.bench.report import Result
from tests.bench.state_kernels import touch_memory
from tests.support.stock import OURS

FORKS = 8
MIB = 2**20
FILL = "import numpy as np\nbig = np.random.default_rng(0).random(125_000_000)\nother = [1]"
FIRST = "print(other)"
USES = "print(big[12_345_678])"
CHANGES = "big[:62_500_000] += 1"


def measure() -> Result:
    """Fork, open each, run its first cell, then one that uses the array, then one that changes half of it."""
    touch_memory()
    times: dict[str, list[float]] = {"open": [], "first": [], "uses": [], "changes": []}
    pss: dict[str, float] = {}
    with place() as here, kernel(OURS, here) as original, contextlib.ExitStack() as stack:
        original.run(FILL)
        original.run("%replkernel sync")
        began = time.perf_counter()
        made, _ = fork_kernel(str(original.manager.kernel_id), here.env, FORKS)
        forked_s = time.perf_counter() - began
        pss["before"] = pss_bytes(here.pids()) / MIB
        forks: list[Kernel] = []
        for record in made:
            forks.append(stack.enter_context(kernel(OURS, here, record.kernel_id)))
            times["open"].append(forks[-1].started_s["reply"])
        pss["opened"] = pss_bytes(here.pids()) / MIB
        for name, cell in (("first", FIRST), ("uses", USES), ("changes", CHANGES)):
            times[name] = [fork.run(cell) for fork in forks]
            pss[name] = pss_bytes(here.pids()) / MIB
    grown = {name: (pss[name] - pss["before"]) / FORKS for name in ("opened", "first", "uses", "changes")}
    details = {"seconds": times, "forked_s": forked_s, "pss_mib": pss, "pss_mib_a_fork": grown}
    return Result("forks", "s", times["uses"], [], "the first cell within 1 s", details)
