"""A measurement that is ended in the middle leaves nobody who keeps its terminal open."""

from __future__ import annotations

import contextlib
import os
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
        return "replkernel.agent.io.zygote" in process.cmdline()
    return False


def started_with(mark: str) -> list[psutil.Process]:
    """Return what has the mark in its environment: agents are nobody's children."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("STARTED_BY") == mark:
                found.append(process)
    return found


def test_the_terminal_of_a_measurement_that_is_ended_is_closed() -> None:
    command = [sys.executable, "-m", "tests.bench", "survival_agent"]
    env = os.environ | {"STARTED_BY": f"test_bench_end of {os.getpid()}"}
    bench = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    started: list[psutil.Process] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(is_forked, started)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
        started = started_with(env["STARTED_BY"])
    bench.terminate()
    try:
        bench.communicate(timeout=PATIENCE_S)
    finally:
        for process in started_with(env["STARTED_BY"]):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        bench.communicate()
