"""The process that a cell is sent to: whether it can still begin one, and how it ended.

Law: a process that was never seen on this machine is taken for alive; its agent tells of its end.
"""

from __future__ import annotations

import contextlib
import os
import signal

from replkernel.agent.io.death import STARTED, Exit, explain, start_time, stat_fields, status_of_ended

_STATE, _FLAGS, _PENDING = 0, 6, 28
"""Fields of /proc/PID/stat, counted from the state."""

_EXITING = 0x4
"""The kernel's PF_EXITING: the process is past its last instruction and lets go of what it holds."""

_KILLED = 1 << (signal.SIGKILL - 1)


class SentTo:
    """One kernel process, known by its pid and its start."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._started = start_time(pid) if pid > 1 else 0
        self._pidfd = -1
        if self._started:
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(pid)

    def close(self) -> None:
        """Let go of it."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def signal(self, number: int) -> bool:
        """Send a signal to the process's group, which it leads; return whether it is there."""
        if self._pidfd < 0 or self.is_over():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)
            return True
        return False

    def end(self) -> str:
        """Return in a clause how the process ended; empty while it lives, or when that cannot be known."""
        status = status_of_ended(self._pid, self._pidfd) if self._pidfd >= 0 and self.is_over() else None
        return "" if status is None else explain(Exit(status), "")

    def is_over(self) -> bool:
        """Tell whether the process is dead, reaped or not, or has been killed and just not died yet."""
        if not self._started:
            return False
        try:
            fields = stat_fields(self._pid)
        except (FileNotFoundError, ProcessLookupError):
            return True
        except OSError:
            return False
        return (
            fields[_STATE] in (b"Z", b"X")
            or int(fields[STARTED]) != self._started
            or bool(int(fields[_FLAGS]) & _EXITING)
            or bool(int(fields[_PENDING]) & _KILLED)
        )
