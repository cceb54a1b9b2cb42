"""The processes of a job: how they are started, found again, signalled.

Law: a process is a job's if its environment says so, whoever its parent is and whatever group it is in; so
nothing of an attempt outlives it, also when its supervisor was killed. Others' processes are none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from replkernel.jobs.words import PLACE, Order, checkpoint_of

MARK = "REPLKERNEL_JOB"
GPUS = "{gpus}"
TORCHRUN = "torchrun"
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
TORCHRUN_COUNTS = ("--nproc-per-node", "--nproc_per_node")
_NOT_FOR_JOBS = ("JPY_PARENT_PID", "KERNEL_ID", "REPLKERNEL_LAUNCHER_PID", "REPLKERNEL_LAUNCHER_RETURNS")


def command_with(command: tuple[str, ...], gpus: int) -> list[str]:
    """Return the command for so many GPUs: `{gpus}` is their number; torchrun starts a process for each."""
    words = [word.replace(GPUS, str(gpus)) for word in command]
    place = _torchrun(words)
    if place is None or GPUS in " ".join(command):
        return words
    for number, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in TORCHRUN_COUNTS:
            if equals:
                words[number] = f"{name}={gpus}"
            elif number + 1 < len(words):
                words[number + 1] = str(gpus)
            return words
    return [*words[: place + 1], f"{TORCHRUN_COUNTS[0]}={gpus}", *words[place + 1 :]]


def _torchrun(words: list[str]) -> int | None:
    """Return where torchrun's own arguments begin, less one; None: it is not torchrun."""
    for number, word in enumerate(words[:4]):
        if os.path.basename(word) == TORCHRUN:
            return number
        if word in TORCHRUN_MODULES and number and words[number - 1] == "-m":
            return number
    return None


def environment(base: Mapping[str, str], order: Order, place: Path) -> dict[str, str]:
    """Return the environment of a job's program."""
    plain = {name: value for name, value in base.items() if name not in _NOT_FOR_JOBS}
    return {
        **plain,
        MARK: order.job,
        PLACE: str(place),
        "REPLKERNEL_JOB_GPUS": str(len(order.gpus)),
        "REPLKERNEL_JOB_CHECKPOINT": str(checkpoint_of(order.directory, order.job)),
        "CUDA_VISIBLE_DEVICES": ",".join(order.gpus),
        "PYTHONUNBUFFERED": plain.get("PYTHONUNBUFFERED", "1"),
    }


def start(order: Order, base: Mapping[str, str], place: Path, log: int) -> subprocess.Popen[bytes]:
    """Start the program in a session of its own; raises OSError."""
    checkpoint_of(order.directory, order.job).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return subprocess.Popen(
        command_with(order.command, len(order.gpus)),
        cwd=order.directory,
        env=environment(base, order, place),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def members(place: Path) -> list[int]:
    """Return the pids of all processes of the job that has this directory, but for its supervisor."""
    mark = f"{PLACE}={place}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0") and not _is_over(name):
                found.append(int(name))
    return found


def _is_over(name: str) -> bool:
    """Tell whether a process is a zombie."""
    return Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")


def catches(pid: int, signum: signal.Signals) -> bool:
    """Tell whether a process has a handler for a signal."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signum - 1) & 1)
    return False


def send(pids: list[int], signum: signal.Signals) -> None:
    """Signal processes; those that are over are none."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)
