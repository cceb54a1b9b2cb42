"""Why a kernel process died, in one clause for its user; and what the system knows of processes."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

GIB = 1 << 30
MIB = 1 << 20
LAST_WORDS_BYTES = 4096
LAST_WORDS_CHARACTERS = 300


class Exit(NamedTuple):
    """The end of a process: its raw wait status (None when nobody could know) and its largest memory."""

    wait_status: int | None
    rss_max_bytes: int = 0

    @property
    def failed(self) -> bool:
        """Tell whether the process ended itself with an error."""
        return self.wait_status is not None and os.waitstatus_to_exitcode(self.wait_status) > 0


def explain(end: Exit, killed_for_memory: bool) -> str:
    """Return the clause; `killed_for_memory` tells that the system killed somebody for memory meanwhile."""
    if end.wait_status is None:
        if killed_for_memory:
            return "its process ended, probably killed by the kernel for lack of memory"
        return "its process ended, nobody knows how: its host agent has been restarted since its start"
    code = os.waitstatus_to_exitcode(end.wait_status)
    if code >= 0:
        return f"its process ended by itself with exit code {code}"
    name = _signal_name(-code)
    if -code == signal.SIGKILL and killed_for_memory:
        return f"killed by the kernel for lack of memory (RSS was {_size(end.rss_max_bytes)})"
    details = [] if -code == signal.SIGKILL else [(signal.strsignal(-code) or name).lower()]
    if end.rss_max_bytes:
        details.append(f"RSS was {_size(end.rss_max_bytes)}")
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


def _size(size: int) -> str:
    return f"{size / GIB:.1f} GB" if size >= GIB else f"{size / MIB:.0f} MB"


def memory_kills() -> int:
    """Return how many processes the system has killed for lack of memory, in our cgroup or on this machine.

    Only a change between two calls means something. Reads cgroup v2, cgroup v1 and /proc/vmstat.
    """
    return sum(_counter(path, "oom_kill") for path in _counter_files())


def _counter_files() -> list[Path]:
    files = [Path("/proc/vmstat")]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                files.append(Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                files.append(Path("/sys/fs/cgroup/memory") / group.lstrip("/") / "memory.oom_control")
    return files


def _counter(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def start_time(pid: int) -> int:
    """Return when process `pid` started, in clock ticks since boot; 0 when there is no such process.

    With the pid it names a process for good. A zombie counts as none.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if fields[0] == "Z" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0
