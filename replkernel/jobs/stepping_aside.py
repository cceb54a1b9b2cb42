"""A job on cores alone, so that cells do not feel it: last for processors, first to go where memory runs out.

Law: nothing here raises. What a system does not allow is left out, and the supervisor's watch on memory is
always there.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

from replkernel.agent.io.memory_kills import format_size

GIB = 1 << 30
NICEST = 19
FIRST_TO_GO = 1000
RESERVED_TIMES = 2
"""A process may ask the system for so many times the memory of its job: not all that is asked for is used."""
SCAN_S = 2.0
"""New processes of a job are found after so long; those that are known are looked at each time."""
SHARE = 0.01
"""Of a core: either takes no more, however many processes there are."""
APART_S_MAX = 10.0
"""It looks as often as this all the same."""


def step_aside(memory_gb: float) -> None:
    """Have this process, and all that it starts, run where nobody else wants to; between fork and exec."""
    with contextlib.suppress(OSError):
        os.nice(NICEST)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _write("/proc/self/autogroup", NICEST)  # Sessions share processors evenly, whatever is nice in them.
    _write("/proc/self/oom_score_adj", FIRST_TO_GO)
    most = int(memory_gb * RESERVED_TIMES * GIB)
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _write(file: str, number: int) -> None:
    with contextlib.suppress(OSError):
        Path(file).write_text(str(number))


class MemoryWatch:
    """Tells when the processes of a job, which `members` finds, have more memory than `memory_gb`."""

    def __init__(
        self,
        memory_gb: float,
        members: Callable[[], list[int]],
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        """`spent` tells how much CPU time was taken so far."""
        self._gb, self._members, self._spent = memory_gb, members, spent
        self._known: list[int] = []
        self._scan_at = self._look_at = float("-inf")
        self._told = ""
        self.held = 0
        """How many bytes they had at the last look."""

    def look(self, now: float) -> str:
        """Return that they have too much, in a clause with what to do; or nothing."""
        if now >= self._scan_at:
            before = self._spent()
            self._known = self._members()
            self._scan_at = now + max(SCAN_S, self._apart_s(before))
        if now < self._look_at:
            return self._told
        before = self._spent()
        self._told = self._measure()
        self._look_at = now + self._apart_s(before)
        return self._told

    def _apart_s(self, before: float) -> float:
        return min((self._spent() - before) / SHARE, APART_S_MAX)

    def _measure(self) -> str:
        most = int(self._gb * GIB)
        self.held = sum(map(resident, self._known))
        if self.held > most:  # They may share it: that is counted once, which takes longer.
            self.held = sum(map(proportional, self._known))
        if self.held <= most:
            return ""
        return (
            f"it took {format_size(self.held)} of memory and may have {format_size(most)}: "
            "submit it with a larger --memory"
        )


class WatchAside:
    """Has a watch look, each `apart_s`, in a thread that gives way to cells; `told` and `held` are its last.

    The supervisor's own priority stays as it is, for an agent that it starts again would have a lower one.
    The thread does not wait for an idle core: its job has to be bounded on a busy host as well. Where there
    can be none, the supervisor looks itself, at each `turn`.
    """

    def __init__(self, watch: MemoryWatch, apart_s: float) -> None:
        """Begin to look."""
        self.told, self.held = "", 0
        self._watch, self._apart_s = watch, apart_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        with contextlib.suppress(RuntimeError, MemoryError):  # Its user has as many as he may.
            thread = threading.Thread(target=self._run, name="memory watch", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICEST)
        while not self._over.is_set():
            self._look()
            self._over.wait(self._apart_s)

    def _look(self) -> None:
        with contextlib.suppress(Exception):  # Where memory is short, say: that is when a watch is needed.
            self.told = self._watch.look(time.monotonic())
            self.held = self._watch.held

    def turn(self) -> None:
        """Look, if nobody else does."""
        if self._thread is None:
            self._look()

    def close(self) -> None:
        """End, before this process is forked."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()


def resident(pid: int) -> int:
    """Return how many bytes of memory a process has, what it shares included; 0 if it is over.

    Pages of files do not count: the system takes them back whenever it wants to.
    """
    return _sum_of(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:")) or 0


def proportional(pid: int) -> int:
    """Return the same, with its part of what it shares; all of it where the system does not tell."""
    told = _sum_of(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))
    return resident(pid) if told is None else told


def _sum_of(file: str, names: tuple[str, ...]) -> int | None:
    """Return the sum of these lines of a file, in bytes; None where it has none of them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in Path(file).read_text(errors="replace").splitlines()]
        found = [int(line[1]) for line in lines if line and line[0] in names]
        return sum(found) * 1024 if found else None
    return None
