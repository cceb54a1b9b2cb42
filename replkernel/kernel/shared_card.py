"""What holds a process to its part of a GPU, beside others on the same card.

torch's allocator holds its memory (`gpu/vram.py`). Where NVIDIA's MPS daemon runs, the driver holds that
too, and its share of the processors. Law: the daemon's two variables are read when CUDA starts, and only
set here; the user's own come back. What nothing holds is told, once a process.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import stat
from collections.abc import Callable, MutableMapping
from pathlib import Path

from replkernel.kernel.visible_gpus import cuda_has_started

MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
DIRECTORY_DEFAULT = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's daemon has its pipes there by default.
CONTROL = "control"
"""The pipe at which the daemon listens."""
KEEPS = (
    "replkernel: CUDA was started in this process with another part of a GPU, or a whole one, and keeps to "
    "that until the kernel is restarted."
)


def mps_runs(env: MutableMapping[str, str] = os.environ) -> bool:
    """Tell whether an MPS daemon of this host can be reached."""
    return _listens(Path(env.get(DIRECTORY) or DIRECTORY_DEFAULT) / CONTROL)


def _listens(path: Path) -> bool:
    """Tell whether a pipe has somebody behind it; one that its daemon has left has not."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        elif stat.S_ISSOCK(mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asks:
                asks.setblocking(False)
                asks.connect(str(path))
    except OSError as error:  # Whoever lets nobody in, or speaks otherwise, is there.
        return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ECONNREFUSED)
    return True


class SharedCard:
    """One process's. `started` tells whether CUDA has started, which reads the variables once."""

    def __init__(
        self, env: MutableMapping[str, str] = os.environ, started: Callable[[], bool] = cuda_has_started
    ) -> None:
        self._env, self._started = env, started
        self._own: dict[str, str | None] = {}
        """What the variables were before they were set here."""
        self._set_to: tuple[str | None, str | None] = (None, None)
        self._told: set[str] = set()

    def lend(self, part: float, vram_gb: float) -> str:
        """Have a cell held to a `part` of its GPU (0: it has all) and to so many GiB; return what to tell."""
        runs = bool(part) and mps_runs(self._env)
        threads = str(math.ceil(part * 100)) if runs else None
        wanted = (threads, f"0={round(vram_gb * 1024)}M" if runs and vram_gb else None)
        if wanted != self._set_to and self._started():
            return self._once(KEEPS)
        self._set_to = wanted
        self._set(THREADS, wanted[0])
        self._set(MEMORY, wanted[1])
        return self._once(unheld(vram_gb)) if part and not runs else ""

    def _once(self, text: str) -> str:
        """Return a text of which nothing of its kind has been told."""
        kind = KEEPS if text is KEEPS else ""
        if kind in self._told:
            return ""
        self._told.add(kind)
        return text

    def _set(self, name: str, value: str | None) -> None:
        if value is None and name not in self._own:
            return
        if name not in self._own:
            self._own[name] = self._env.get(name)
        put = self._own.pop(name) if value is None else value
        if put is None:
            self._env.pop(name, None)
        else:
            self._env[name] = put


def unheld(vram_gb: float) -> str:
    """Return what is said where no MPS daemon runs."""
    memory = (
        f"torch is held to {vram_gb:g} GiB of it; other libraries, and processes that cells start, are not"
        if vram_gb
        else "how much memory it has is not known, so nothing holds anybody to a part of that"
    )
    return (
        f"replkernel: this notebook shares its GPU with others. On this host {memory}, and computing time is "
        "divided as it comes: no MPS daemon runs here."
    )
