"""Waits for the end of processes, ours or not, by pidfd in the event loop.

Law: an end is told once, in the loop; a process that we are the parent of is reaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

from replkernel.agent.io.death import Exit, status_of_ended

OnExit = Callable[[Exit], None]


class ProcessWatch:
    """Watches one process until it ends or `close` is called."""

    def __init__(self, pid: int, on_exit: OnExit) -> None:
        self.pid = pid
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1
            self._handle: asyncio.Handle | None = self._loop.call_soon(self._ended)
        else:
            self._handle = None
            self._loop.add_reader(self._fd, self._ended)

    def _ended(self) -> None:
        end = _reap(self.pid, self._fd)
        self.close()
        self._on_exit(end)

    def close(self) -> None:
        """Watch no longer."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def _reap(pid: int, pidfd: int) -> Exit:
    with contextlib.suppress(ChildProcessError):
        reaped, status, usage = os.wait4(pid, os.WNOHANG)
        if reaped == pid:
            return Exit(status, usage.ru_maxrss * 1024, time.monotonic())
    return Exit(status_of_ended(pid, pidfd) if pidfd >= 0 else None, at=time.monotonic())


class DeathClock:
    """Notes when a process ended and tells so, also while whoever reaps it is busy."""

    def __init__(self, on_end: Callable[[int], None]) -> None:
        self.at = 0.0
        self._on_end = on_end
        self._pid = 0
        self._fd = -1

    def watch(self, pid: int) -> None:
        """Begin with a process in place of the one before."""
        self.close()
        self.at, self._pid = 0.0, pid
        with contextlib.suppress(OSError):
            self._fd = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._fd, self._ended)

    def _ended(self) -> None:
        self.at = time.monotonic()
        self.close()
        self._on_end(self._pid)

    def close(self) -> None:
        """Watch no longer; the time stays noted."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
