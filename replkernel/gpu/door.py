"""The door before `cuInit`, as this process and those that it starts see it: what is asked, what is told.

Whether the library stands there (`cuda_door.c`, preloaded) is asked once. `ruling` is pure. Law: whoever sees
no GPU by a wish of its own is let in, and sees none; whoever has a lease goes on without being held up.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable

import msgspec

log = logging.getLogger(__name__)

ASKS, HIDDEN = "REPLKERNEL_CUDA_ASKS", "REPLKERNEL_CUDA_HIDDEN"
"""Where processes that the notebook has started ask; whether GPUs are hidden from them."""
UUIDS = ("GPU-", "MIG-")
UNSET = "*"
GO, USE, NO = "go", "use", "no"
OK, NO_DEVICE = 0, 100
"""What `cuInit` returns: its own outcome, or CUDA_ERROR_NO_DEVICE, without having been called."""


class Asked(msgspec.Struct, frozen=True):
    """What a process says that is about to start CUDA: which GPUs it sees, and whether these are hidden."""

    pid: int
    hidden: bool
    sees: str


def parse(line: str) -> Asked | None:
    """Return what was asked; None for what makes no sense."""
    words = line.rstrip("\n").split(" ", 2)
    if len(words) != 3 or not words[0].isdecimal() or words[1] not in ("hidden", "seen"):
        return None
    return Asked(int(words[0]), words[1] == "hidden", words[2])


def ruling(asked: Asked, leased: tuple[str, ...] | None) -> str:
    """Return the answer to a process, or nothing where it has to wait for a lease.

    `leased`: the GPUs of the cell that runs, none where it has no lease; None: no cell runs.
    """
    if not asked.hidden and (asked.sees == "" or asked.sees.startswith("-1")):
        return GO  # It was told to see none by whoever started it.
    if asked.hidden and asked.sees == "":
        return GO
    if not leased:
        return ""
    named = [word.strip() for word in asked.sees.split(",") if word.strip().startswith(UUIDS)]
    # Its cell has had others, was paused, and has gone on with these. A UUID may be cut short.
    gone = any(not any(gpu.startswith(word) for gpu in leased) for word in named)
    return f"{USE} {','.join(leased)}" if asked.hidden or gone else GO


class Door:
    """This process's: `asked` is called in the thread that starts CUDA, and returns what `cuInit` is to."""

    def __init__(self, asked: Callable[[], int]) -> None:
        library = ctypes.CDLL(None)
        self._open = None
        if not hasattr(library, "replkernel_cuda_door"):
            return
        self._asked = ctypes.CFUNCTYPE(ctypes.c_int)(asked)
        self._open = ctypes.c_int.in_dll(library, "replkernel_cuda_open")
        library.replkernel_cuda_door(self._asked)

    @property
    def is_there(self) -> bool:
        """Whether the library was preloaded."""
        return self._open is not None

    def stand(self, *, open_: bool) -> None:
        """Let everybody of this process in, or have each asked; nothing here can fail."""
        if self._open is not None:
            self._open.value = int(open_)


def announce(path: str) -> None:
    """Have processes that are started from now on ask there; empty: have them ask nobody."""
    if path:
        os.environ[ASKS] = path
    else:
        os.environ.pop(ASKS, None)
