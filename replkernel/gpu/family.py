"""The processes that this one has started and that hold GPUs: vLLM's engine, torchrun's ranks, workers.

Descendants, and those of this process's session whose parents have ended. Law: nothing here raises, and a
process is known by its number and the moment it began, for numbers are used again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import msgspec

from replkernel.gpu import seen
from replkernel.gpu.who_holds import Holds, Known, child_verdict

PROCESSES_MAX = 10_000
_PARENT, _SESSION, _BEGAN = 1, 3, 19
"""Places in `/proc/<pid>/stat`, counted from the state."""


class Relative(msgspec.Struct, frozen=True):
    """A process that this one has started, and what it holds."""

    pid: int
    began: str
    name: str
    bytes: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}), which this notebook has started,"


def that_hold(*, orphans: bool = True) -> tuple[Relative, ...]:
    """Return the relatives that hold GPUs; `orphans`: also those whose parents have ended."""
    if not (seen.DEVICES / "nvidiactl").exists():
        return ()
    pids = set(_descendants(os.getpid())) | (set(_orphans()) if orphans else set())
    opened = {pid: devices for pid in sorted(pids) if (devices := seen.devices_open(pid))}
    if not opened:
        return ()
    by_nvml = seen.bytes_by_process()
    ours = Known(seen.devices_open(), _of(by_nvml, os.getpid()))
    found = ((pid, child_verdict(Known(devices, _of(by_nvml, pid)), ours)) for pid, devices in opened.items())
    return tuple(_relative(pid, holds) for pid, holds in found if holds is not None)


def lives(relative: Relative) -> bool:
    """Tell whether it is still there."""
    found = _stat(relative.pid)
    return found is not None and found[_BEGAN] == relative.began and found[0] != "Z"


def bytes_by_gpu(relatives: Iterable[Relative]) -> dict[str, int]:
    """Return the bytes that this process and these have on each GPU, as far as NVML tells."""
    found = dict(seen.bytes_by_gpu() or {})
    for relative in relatives:
        for gpu, count in (seen.bytes_by_gpu(relative.pid) or {}).items():
            found[gpu] = found.get(gpu, 0) + count
    return found


def _of(by_nvml: dict[int, dict[str, int]] | None, pid: int) -> dict[str, int] | None:
    return None if by_nvml is None else by_nvml.get(pid, {})


def _relative(pid: int, holds: Holds) -> Relative:
    name = "?"
    with contextlib.suppress(OSError):
        name = (seen.PROC / str(pid) / "comm").read_text(errors="replace").strip()
    found = _stat(pid)
    return Relative(pid, "" if found is None else found[_BEGAN], name, holds.bytes)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, the older before the younger."""
    waiting, count = [pid], 0
    while waiting and count < PROCESSES_MAX:
        with contextlib.suppress(OSError, ValueError):
            for thread in (seen.PROC / str(waiting.pop()) / "task").iterdir():
                for child in map(int, (thread / "children").read_text().split()):
                    yield child
                    waiting.append(child)
                    count += 1


def _orphans() -> Iterator[int]:
    """Yield the processes of our session, if it is ours alone, whose parents have ended."""
    mine = os.getpid()
    if os.getsid(0) != mine:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(seen.PROC):
            found = _stat(int(name)) if name.isdecimal() and int(name) != mine else None
            if found is not None and found[_SESSION] == str(mine):
                yield int(name)


def _stat(pid: int) -> list[str] | None:
    with contextlib.suppress(OSError, IndexError):
        words = (seen.PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return words if len(words) > _BEGAN else None
    return None
