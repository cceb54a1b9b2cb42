"""Starts a scheduler of this user's own, on loopback, when a cell asks for GPUs and there is none.

Law: whoever else starts one meanwhile is as good, for the journal lets only one serve; a scheduler outlives
who started it, and ends by itself once nobody is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from replkernel.agent.io.start import JOB_ON_CORES, NOT_FOR_PROGRAMS, outside_jobs
from replkernel.errors import ReplkernelError
from replkernel.launch.module_command import module_command
from replkernel.leasing.finding import URL, find_scheduler, scheduler_place

START_S_MAX = 30.0
"""A scheduler that does not serve after so long is given up; most do within a second."""
LOOK_S = 0.05
IDLE_S = 300
"""One that was started so ends after so many seconds without an agent or a router."""
SAID_BYTES_MAX = 2000


class SchedulerNotStarted(ReplkernelError):
    """No scheduler could be started; the message says why, and where more is told."""


async def find_or_start(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the scheduler's URL and token, of one that is started if there is none.

    Where a URL is set none is started. Raises SchedulerNotStarted.
    """
    found = find_scheduler(env)
    if found[0] or env.get(URL, "").strip():
        return found
    if env.get(JOB_ON_CORES):
        raise SchedulerNotStarted(
            "a job without GPUs starts none, for that would have its low priority; start one outside the job"
        )
    log = scheduler_place(env) / "scheduler.log"
    try:
        pid = _spawn(env, log)
    except OSError as error:
        raise SchedulerNotStarted(f"one cannot be started: {error.strerror}") from error
    deadline, ended = time.monotonic() + START_S_MAX, False
    while time.monotonic() < deadline:
        found = find_scheduler(env)
        if found[0]:
            return found
        if ended:
            raise SchedulerNotStarted(f"one was started and ended: {_last_line(log)}")
        ended = _has_failed(pid)
        await asyncio.sleep(LOOK_S)
    raise SchedulerNotStarted(f"one was started and does not serve after {START_S_MAX:g} s, see {log}")


def _spawn(env: Mapping[str, str], log: Path) -> int:
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = module_command("replkernel.cli", "scheduler", "--port", "0", "--idle", str(IDLE_S))
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        return os.posix_spawn(
            sys.executable,
            command,
            {name: value for name, value in outside_jobs(env).items() if name not in NOT_FOR_PROGRAMS},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, said, 1),
                (os.POSIX_SPAWN_DUP2, said, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(said)


def _has_failed(pid: int) -> bool:
    """Tell whether the process has ended, and bury it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:  # It was buried already.
        return True


def _last_line(log: Path) -> str:
    said = ""
    with contextlib.suppress(OSError):
        said = log.read_bytes()[-SAID_BYTES_MAX:].decode("utf-8", "replace").strip()
    return said.splitlines()[-1].rstrip(".") if said else f"see {log}"
