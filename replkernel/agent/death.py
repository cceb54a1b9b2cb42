"""Why a kernel process died, in one clause for its user; and what the system knows of processes."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

from replkernel.agent.memory_kills import format_size

LAST_WORDS_BYTES = 4096
LAST_WORDS_CHARACTERS = 300
_EXIT_CODE = 49
"""Where /proc/PID/stat has the wait status, counted from the state."""


class Exit(NamedTuple):
    """The end of a process: its raw wait status (None when nobody could know) and its largest memory.

    `at` is the monotonic time by which it was over, 0 when nobody noted it.
    """

    wait_status: int | None
    rss_max_bytes: int = 0
    at: float = 0.0

    @property
    def failed(self) -> bool:
        """Tell whether the process ended itself with an error."""
        return self.wait_status is not None and os.waitstatus_to_exitcode(self.wait_status) > 0


def explain(end: Exit, shortage: str) -> str:
    """Return the clause; `shortage` says which memory ran out, if the system killed for it meanwhile."""
    if end.wait_status is None:
        if shortage:
            return f"its process ended, probably killed by the kernel for lack of memory ({shortage})"
        return "its process ended, nobody knows how: its host agent has been restarted since its start"
    code = os.waitstatus_to_exitcode(end.wait_status)
    if code >= 0:
        return f"its process ended by itself with exit code {code}"
    name = _signal_name(-code)
    if -code == signal.SIGKILL and shortage:
        used = format_size(end.rss_max_bytes)
        return f"killed by the kernel for lack of memory ({shortage}; RSS was {used})"
    details = [] if -code == signal.SIGKILL else [(signal.strsignal(-code) or name).lower()]
    if end.rss_max_bytes:
        details.append(f"RSS was {format_size(end.rss_max_bytes)}")
    return f"killed by {name}" + (f" ({'; '.join(details)})" if details else "")


def last_words(log: Path) -> str:
    """Return the last line of a process's log as the end of a clause, or nothing."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LAST_WORDS_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
        if lines:
            return f" ({lines[-1].strip()[:LAST_WORDS_CHARACTERS]})"
    return ""


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def status_of_zombie(pid: int) -> int | None:
    """Return the raw wait status of a dead process that nobody has reaped yet, or None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[_EXIT_CODE]) if fields[0] == "Z" else None
    except (OSError, ValueError, IndexError):
        return None


def start_time(pid: int) -> int:
    """Return when process `pid` started, in clock ticks since boot; 0 when there is no such process.

    With the pid it names a process for good. A zombie counts as none.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if fields[0] == "Z" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0
