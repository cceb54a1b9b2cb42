"""Cores and memory of cells that have asked for some, held by cgroup v2 where this agent may make cgroups.

One cgroup a kernel process, made when its first such cell begins, and without limits between cells. Laws:
nothing here raises, and no process is moved but kernels' and the agent's own family; where cells
cannot be limited, `why` says so in a clause with the fix.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from replkernel.hosts.memory_cgroups import CGROUPS, own_groups

VARIABLE = "REPLKERNEL_CGROUP"
PERIOD_US = 100_000
QUOTA_US_MIN = 1_000
AGENT, KERNEL = "replkernel-agent", "replkernel-kernel-"
_WANTED = ("cpu", "memory")
_DELEGATE = (
    "start it by `systemd-run --user --scope -p Delegate=yes replkernel agent …`, "
    f"or name one with {VARIABLE}"
)
_GIB = 1 << 30


class CellLimits:
    """The cgroups below `base`; without one (None) nothing is limited, and `why` says why."""

    def __init__(self, base: Path | None, why: str = "") -> None:
        self.base, self.why = base, why

    def limit(self, pid: int, cpu: float, memory_bytes: int) -> str:
        """Let a process have so many cores and bytes (0: no limit) from now on; return what could not be."""
        if self.base is None or pid <= 0:
            return self.why
        group = self.base / f"{KERNEL}{pid}"
        if not cpu and not memory_bytes and not group.is_dir():
            return ""
        try:
            if not group.is_dir():
                self.tidy()
                group.mkdir()
            (group / "cgroup.procs").write_text(str(pid))
            quota = max(QUOTA_US_MIN, round(cpu * PERIOD_US)) if cpu else "max"
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            held = _number(group / "memory.current")
            if memory_bytes and held >= memory_bytes:
                (group / "memory.max").write_text("max")
                return f"it holds {held / _GIB:.1f} GiB already, and its cell asked for less"
            (group / "memory.max").write_text(str(memory_bytes or "max"))
        except (OSError, ValueError) as error:
            return f"{group} cannot be used ({getattr(error, 'strerror', None) or error})"
        return ""

    def tidy(self) -> None:
        """Remove the cgroups of processes that are gone."""
        for group in self.base.glob(f"{KERNEL}*") if self.base is not None else ():
            with contextlib.suppress(OSError):
                group.rmdir()  # One that has processes stays.


def find_limits(
    env: Mapping[str, str], root: Path = CGROUPS, proc: Path = Path("/proc"), *, is_root: bool | None = None
) -> CellLimits:
    """Return where this agent may limit cells, made ready, or why it may not."""
    found = _place(env, root, proc, os.geteuid() == 0 if is_root is None else is_root)
    if isinstance(found, str):
        return CellLimits(None, found)
    base, moves = found
    try:
        base.mkdir(exist_ok=True)
        if moves:
            _step_aside(base, proc)
        for group in (base.parent, base) if base.parent == root else (base,):
            _enable(group)
    except OSError as error:
        return CellLimits(None, f"{base} cannot hand out cores and memory ({error.strerror}): {_DELEGATE}")
    return CellLimits(base)


def _place(env: Mapping[str, str], root: Path, proc: Path, is_root: bool) -> tuple[Path, bool] | str:
    """Return the cgroup for ours, and whether the agent lives in it; or why there is none."""
    there = _words(root / "cgroup.controllers")
    if not set(_WANTED) <= there:
        return (
            "this machine's cgroup v2 has no controllers for cores and memory: boot it with cgroup v2 alone"
        )
    named = env.get(VARIABLE, "").strip()
    if named:
        base = Path(named)
        if not base.is_dir() or not base.is_relative_to(root) or base == root:
            return f"{VARIABLE}={named[:200]} is no cgroup below {root}: correct or unset it"
        return base, False
    if is_root:
        return root / "replkernel", False
    own = next((group for group, top in own_groups(proc / "self" / "cgroup", root) if top == root), None)
    if own is None or own == root or not os.access(own / "cgroup.procs", os.W_OK):
        return f"this user may make no cgroups here: {_DELEGATE}"
    return own, True


def _step_aside(base: Path, proc: Path) -> None:
    """Move the agent's own family into a cgroup of its own: one with others below it may hold no process."""
    aside, pids = base / AGENT, (base / "cgroup.procs").read_text().split()
    strangers = sum(not _is_ours(int(pid), proc) for pid in pids)
    if strangers:
        raise OSError(errno.EBUSY, f"{strangers} other processes are in it")
    aside.mkdir(exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (aside / "cgroup.procs").write_text(pid)


def _is_ours(pid: int, proc: Path) -> bool:
    """Say whether a process is this one, or has it for an ancestor."""
    for _ in range(64):
        if pid == os.getpid():
            return True
        try:
            pid = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def _enable(group: Path) -> None:
    """Have the cgroups below `group` limit cores and memory."""
    if not set(_WANTED) <= _words(group / "cgroup.subtree_control"):
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _WANTED))


def _words(file: Path) -> set[str]:
    with contextlib.suppress(OSError):
        return set(file.read_text().split())
    return set()


def _number(file: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0
