"""The processes that this one has started and that hold GPUs: vLLM's engine, torchrun's ranks, workers.

Descendants, and those of this process's session whose parents have ended. Law: nothing here raises, and a
process is known by its number and the moment it began, for numbers are used again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import msgspec

from replkernel.agent.io.death import start_time, stat_fields
from replkernel.gpu import seen
from replkernel.gpu.who_holds import Holds, Known, child_verdict

PROCESSES_MAX = 10_000
_SESSION = 3
"""The session's place in `/proc/<pid>/stat`, counted from the state."""


class Relative(msgspec.Struct, frozen=True):
    """A process that this one has started, and what it holds."""

    pid: int
    began: int
    name: str
    bytes: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}), which this notebook has started,"


def that_hold(*, orphans: bool = True) -> tuple[Relative, ...]:
    """Return the relatives that hold GPUs; `orphans`: also those whose parents have ended."""
    if not seen.has_driver():
        return ()
    pids = set(_descendants(os.getpid())) | (set(_orphans()) if orphans else set())
    opened = {pid: devices for pid in sorted(pids) if (devices := seen.devices_open(pid))}
    if not opened:
        return ()
    by_nvml = seen.bytes_by_process()
    ours = Known(seen.devices_open(), _of(by_nvml, os.getpid()))
    found = ((pid, child_verdict(Known(devices, _of(by_nvml, pid)), ours)) for pid, devices in opened.items())
    return tuple(_relative(pid, holds) for pid, holds in found if holds is not None)


def without_gpus() -> tuple[Relative, ...]:
    """Return the descendants that hold no GPU, and may start CUDA at any moment."""
    holding = {each.pid for each in that_hold(orphans=False)}
    found = (_relative(pid, Holds("")) for pid in sorted(set(_descendants(os.getpid())) - holding))
    return tuple(each for each in found if each.began)


def lives(relative: Relative) -> bool:
    """Tell whether it is still there."""
    return start_time(relative.pid) == relative.began != 0


def bytes_by_gpu(relatives: Iterable[Relative]) -> dict[str, int]:
    """Return the bytes that this process and these have on each GPU, as far as NVML tells."""
    by_nvml, found = seen.bytes_by_process() or {}, dict[str, int]()
    for pid in (os.getpid(), *(each.pid for each in relatives)):
        for gpu, count in by_nvml.get(pid, {}).items():
            found[gpu] = found.get(gpu, 0) + count
    return found


def _of(by_nvml: dict[int, dict[str, int]] | None, pid: int) -> dict[str, int] | None:
    return None if by_nvml is None else by_nvml.get(pid, {})


def _relative(pid: int, holds: Holds) -> Relative:
    name = "?"
    with contextlib.suppress(OSError):
        name = (seen.PROC / str(pid) / "comm").read_text(errors="replace").strip()
    return Relative(pid, start_time(pid), name, holds.bytes)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, the older before the younger."""
    waiting, count = [pid], 0
    while waiting and count < PROCESSES_MAX:
        for path in (seen.PROC / str(waiting.pop()) / "task").glob("*/children"):
            with contextlib.suppress(OSError):  # A thread that has ended meanwhile.
                for child in map(int, path.read_text().split()):
                    yield child
                    waiting.append(child)
                    count += 1


def _orphans() -> Iterator[int]:
    """Yield the processes of our session, if it is ours alone, whose parents have ended."""
    mine = os.getpid()
    if os.getsid(0) != mine:
        return
    for name in os.listdir(seen.PROC):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(name) != mine and int(stat_fields(int(name))[_SESSION]) == mine:
                yield int(name)
