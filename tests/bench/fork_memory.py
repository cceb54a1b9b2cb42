"""Eight forks of a kernel with an array of 1 GB, on one machine: their first cells, and what they take.

`forks_of` tells what forks take whose data are other libraries': no files can be laid under their memory.
"""

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

OTHERS_FORKS = 2
_VALUES = "import numpy as np; values = np.random.default_rng(0).random(32_000_000); "
OTHERS = {
    "numpy": (f"{_VALUES}big = values; del values", "big[1]"),
    "pandas": (
        f"{_VALUES}import pandas; big = pandas.DataFrame(values.reshape(-1, 8)); del values",
        "big.iat[1, 1]",
    ),
    "torch": ("import torch; big = torch.rand(32_000_000, dtype=torch.float64)", "big[1]"),
    "pyarrow": (
        f"{_VALUES}import pyarrow, pyarrow.compute; big = pyarrow.compute.add(values, 0); del values",
        "big[1]",
    ),
}
"""What makes 256 MB, and what uses it."""
OWN_MEMORY = """
import gc
def own():
    lines = open('/proc/self/smaps_rollup').read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith('Private_Dirty'))
before = own(); del big, used; gc.collect(); print(before - own())
"""
"""Prints how many KiB a process has for itself because of them. polars keeps what is freed: left out."""


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


def measure_others() -> Result:
    """Fork a kernel with 256 MB of one library's, have each fork use them; for each of some libraries."""
    touch_memory()
    found: dict[str, dict[str, float]] = {}
    for library, (fill, uses) in OTHERS.items():
        with place() as here, kernel(OURS, here) as original, contextlib.ExitStack() as stack:
            original.run(fill)
            original.run("%replkernel sync")
            made, _ = fork_kernel(str(original.manager.kernel_id), here.env, OTHERS_FORKS)
            forks = [stack.enter_context(kernel(OURS, here, record.kernel_id)) for record in made]
            seconds = [fork.run(f"used = {uses}") for fork in forks]
            kib = [int(fork.stream(OWN_MEMORY)[1].split()[-1]) for fork in forks]
        found[library] = {"own_mib": round(max(kib) / 1024, 1), "first_use_s": round(max(seconds), 3)}
        print(library, found[library], flush=True)
    took = [one["own_mib"] for one in found.values()]
    return Result("forks_of", "MiB", took, [], "of 256 MB: shared for numpy and what stands on it", found)
