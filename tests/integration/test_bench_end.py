"""A measurement that is ended in the middle leaves nobody who keeps its terminal open."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


def is_forked(process: psutil.Process) -> bool:
    """Tell whether a process is a zygote or came out of one."""
    with contextlib.suppress(psutil.Error):
        return "replkernel.agent.zygote" in process.cmdline()
    return False


def test_the_terminal_of_a_measurement_that_is_ended_is_closed() -> None:
    command = [sys.executable, "-m", "tests.bench", "survival_agent"]
    bench = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    started: list[psutil.Process] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(is_forked, started)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
        started = psutil.Process(bench.pid).children(recursive=True)
    bench.terminate()
    try:
        bench.communicate(timeout=PATIENCE_S)
    finally:
        for process in started:
            if process.is_running():
                process.kill()
        bench.communicate()
