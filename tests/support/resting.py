"""A kernel at rest: what it had, its processes, and how a test has it hibernate."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from replkernel.client.inquiry import ask_agents
from replkernel.settings import data_dir
from tests.support.files_below import files_below
from tests.support.live import AGENT_S, Live, eventually

VARIABLES = """
import numpy, random
small, text, many = 7, "t" * 3_000, [{"n": n} for n in range(200)]
alias = many
middle = bytes(range(256)) * 400
generator = numpy.random.default_rng(1)
large = generator.integers(0, 255, 20_000_000, dtype="uint8")
total = int(large.sum())
def double(value):
    return 2 * value
"""
CHECK = (
    "print(small, len(text), len(many), alias is many, middle == bytes(range(256)) * 400, "
    "int(large.sum()) == total, large.nbytes, double(small))"
)
CHECKED = "7 3000 200 True True True 20000000 14"


def replica_pids() -> set[int]:
    """Return the processes of replicas, as the agents know them."""
    known = ask_agents(os.environ, AGENT_S).kernels
    return {replica.kernel_pid for one in known for replica in one.replicas if replica.kernel_pid}


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def checkpoints() -> list[Path]:
    return sorted(files_below(data_dir(os.environ) / "store", "kernels/*/checkpoint-*"))


def hibernate(live: Live) -> set[int]:
    """Have the kernel hibernate; return the processes that it had."""
    had = eventually(lambda: len(found := replica_pids()) == 3 and found, "three replicas")
    assert "hibernates" in live.value("%replkernel hibernate")
    eventually(lambda: not any(map(runs, had)), "the end of all replicas")
    eventually(lambda: not replica_pids(), "no replica in the status")
    return had
