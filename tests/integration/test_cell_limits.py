"""A real process is held to its cores and memory by cgroup v2, where this machine lets us."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from replkernel.agent.io.cell_limits import CellLimits, find_limits
from tests.support.live import eventually

MIB = 1 << 20
EATS = "import sys; sys.stdin.readline(); x = bytearray(200 << 20); print('ate', flush=True)"


@pytest.fixture
def limits() -> CellLimits:
    found = find_limits(os.environ)
    if found.base is None:
        pytest.skip(f"cores and memory of cells need a writable cgroup v2: {found.why}")
    return found


def test_a_process_dies_of_its_own_limit_and_another_does_not(limits: CellLimits) -> None:
    codes = []
    for memory_bytes in (64 * MIB, 0):
        eater = subprocess.Popen(
            [sys.executable, "-c", EATS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert limits.limit(eater.pid, 0.5, memory_bytes) == ""
        group = f"{limits.base}/replkernel-kernel-{eater.pid}"
        with open(f"{group}/cpu.max") as file:
            assert file.read().split()[0] == "50000"
        eater.communicate("go\n", timeout=300)
        codes.append(eater.returncode)
    limits.tidy()
    assert codes == [-9, 0]


def test_a_process_is_held_to_its_share_of_a_core_until_its_limit_is_lifted(limits: CellLimits) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spins:
        try:
            assert limits.limit(spins.pid, 0.25, 0) == ""
            eventually(lambda: throttled(limits, spins.pid) > 2, "the limit's effect", 60.0)
            assert limits.limit(spins.pid, 0, 0) == ""
            with open(f"{limits.base}/replkernel-kernel-{spins.pid}/cpu.max") as file:
                assert file.read().split()[0] == "max"
        finally:
            spins.kill()
    limits.tidy()


def throttled(limits: CellLimits, pid: int) -> int:
    """Return how often the process had to wait though a core was free."""
    with open(f"{limits.base}/replkernel-kernel-{pid}/cpu.stat") as file:
        return int(dict(line.split() for line in file)["nr_throttled"])
