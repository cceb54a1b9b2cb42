"""`replkernel simulate`, `capacity` and `workload`: become the scheduler's simulator, another package.

`replkernel` never imports the scheduler: it is started by name.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

SIMULATOR = "replkernel_scheduler.sim"
CAPACITY = "replkernel_scheduler.sim.capacity"
WORKLOAD = "replkernel_scheduler.sim.workload_command"


def run_simulate(arguments: Sequence[str], module: str = SIMULATOR) -> int:
    """Replace this process by the simulator; return only if it is not installed."""
    if importlib.util.find_spec(SIMULATOR.partition(".")[0]) is None:
        print(
            "The scheduler (replkernel_scheduler) is not installed: reinstall with `pip install "
            "--force-reinstall replkernel`.",
            file=sys.stderr,
        )
        return 1
    # Its matrices are small: threads cost more than they bring (seven times the time on two busy cores).
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | os.environ
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment)
