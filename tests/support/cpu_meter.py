"""The CPU of a process and of all that it starts, agents too, where a control group can be made.

Elsewhere it is that of the process and of the children that it waited for.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


class Meter:
    """Moves a process (ours) into a control group of its own, and reads the seconds used since."""

    def __init__(self, groups: Path = GROUPS, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._usage: Path | None = None
        for above, file in ((groups / "cpuacct", "cpuacct.usage"), (groups, "cpu.stat")):
            with contextlib.suppress(OSError, ValueError):
                if self._usage is None and (above / "cgroup.procs").exists():
                    place = above / f"replkernel-tests-{self._pid}"
                    place.mkdir(exist_ok=True)
                    (place / "cgroup.procs").write_text(str(self._pid))
                    seconds((place / file).read_text())
                    self._usage = place / file

    def read(self) -> float:
        """Return the seconds of CPU."""
        return sum(os.times()[:4]) if self._usage is None else seconds(self._usage.read_text())

    def close(self) -> None:
        """Step out of the group, and remove it unless somebody else is still there."""
        if self._usage is not None:
            place, self._usage = self._usage.parent, None
            with contextlib.suppress(OSError):
                (place.parent / "cgroup.procs").write_text(str(self._pid))
                place.rmdir()


def seconds(usage: str) -> float:
    """Read what a control group of either version says; raises ValueError for what is neither."""
    if usage.strip().isdecimal():
        return int(usage) / 1e9
    used = dict(line.split(maxsplit=1) for line in usage.splitlines())
    return int(used.get("usage_usec", "none")) / 1e6
