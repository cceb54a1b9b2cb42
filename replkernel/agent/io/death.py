"""Why a kernel process died, in one clause for its user; and what the system knows of processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from replkernel.agent.io.memory_kills import format_size

LAST_WORDS_BYTES = 4096
LAST_WORDS_CHARACTERS = 300
STARTED, _EXIT_CODE = 19, 49
"""Where /proc/PID/stat has the start time and the wait status, counted from the state."""
_GET_INFO, _INFO_BYTES, _INFO_EXIT = 0xC040FF0B, 64, 1 << 3
"""ioctl(PIDFD_GET_INFO), the size of its first struct, the bit of its mask for the wait status."""


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
        used = f"; RSS was {format_size(end.rss_max_bytes)}" if end.rss_max_bytes else ""
        return f"killed by the kernel for lack of memory ({shortage}{used})"
    details = [] if -code == signal.SIGKILL else [(signal.strsignal(-code) or name).lower()]
    if end.rss_max_bytes:
        details.append(f"RSS was {format_size(end.rss_max_bytes)}")
    return f"killed by {name}" + (f" ({'; '.join(details)})" if details else "")


def last_line(said: bytes, most: int) -> str:
    """Return the last line of what a program wrote, `most` characters that can be printed; or nothing."""
    lines = said.decode(errors="replace").strip().splitlines()
    return "".join(letter for letter in lines[-1] if letter.isprintable())[:most] if lines else ""


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


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; OSError when there is no such process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def every_process() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the pid and the fields of each process; those that end meanwhile are left out."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                fields = stat_fields(int(name))
                if len(fields) > STARTED:
                    yield int(name), fields


def parent_of(pid: int) -> int:
    """Return a process's parent; 0 when there is no such process."""
    try:
        return int(stat_fields(pid)[1])
    except (OSError, ValueError, IndexError):
        return 0


def status_of_zombie(pid: int, started: int = 0) -> int | None:
    """Return the raw wait status of a dead process that nobody has reaped yet, or None.

    With `started` (as `start_time` tells it) a process of another start is none.
    """
    try:
        fields = stat_fields(pid)
        other = started and int(fields[STARTED]) != started
        return None if fields[0] != b"Z" or other else int(fields[_EXIT_CODE])
    except (OSError, ValueError, IndexError):
        return None


def status_of_reaped(pidfd: int) -> int | None:
    """Return the raw wait status of a process that somebody else has reaped, or None (Linux before 6.15)."""
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    known = struct.unpack_from("=Q", info)[0] & _INFO_EXIT
    return int(struct.unpack_from("=i", info, _INFO_BYTES - 4)[0]) if known else None


def status_of_ended(pid: int, pidfd: int) -> int | None:
    """Return the raw wait status of a process that has ended and is no child of ours, or None."""
    for _ in range(2):  # It may be reaped between the one look and the other.
        status = status_of_reaped(pidfd)
        if status is None:
            status = status_of_zombie(pid)
        if status is not None:
            return status
    return None


def start_time(pid: int) -> int:
    """Return when process `pid` started, in clock ticks since boot; 0 when there is no such process.

    With the pid it names a process for good. A zombie counts as none.
    """
    try:
        fields = stat_fields(pid)
        return 0 if fields[0] == b"Z" else int(fields[STARTED])
    except (OSError, ValueError, IndexError):
        return 0
