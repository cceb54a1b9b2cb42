"""A cell's wish for GPUs, and what the scheduler calls it.

Pure. Law: a cell's first wish has the same name whichever router speaks of it, and each later one another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import LeaseWish, PausedCell, Waiting
from replkernel.records import HostName
from replkernel.router.core.answers import Fault

NAME_LENGTH_MAX = 180
"""A name that would be longer, for a client chooses its messages' ids, has a digest in it instead."""


@dataclass(slots=True)
class Wish:
    """A cell's wish: `request` is what the scheduler calls it, `fault` why it never comes true."""

    cell: str
    request: str
    wanted: GpuRequest
    hosts: tuple[HostName, ...]
    place: Waiting | None = None
    fault: Fault | None = None
    paused: PausedCell | None = None
    """How far a cell is that was paused, and goes on with this."""
    pause_s: float = 0.0
    """So long the shorter cell is thought to take for which it was paused; 0: nobody knows."""

    def message(self) -> LeaseWish:
        """Return the wish as the scheduler is told it."""
        wanted = self.wanted
        return LeaseWish(
            self.request,
            wanted.gpus,
            self.hosts,
            wanted.model,
            wanted.vram_gb,
            wanted.cpu,
            wanted.memory_gib,
            wanted.part,
            wanted.shared,
            wanted.expected_s,
            wanted.preemptible,
            self.paused,
        )


class Names:
    """The names of one kernel's wishes."""

    def __init__(self, kernel_id: str) -> None:
        self._kernel_id = kernel_id
        self._last: tuple[str, int] = ("", 0)

    def next(self, cell: str) -> str:
        """Return the name of a cell's next wish."""
        known, count = self._last
        count = count + 1 if known == cell else 0
        self._last = (cell, count)
        name = self._name(cell)
        return f"{name}:{count}" if count else name

    def going_on(self, cell: str, times: int) -> str:
        """Return the name of the wish of a cell that was paused for so many times."""
        return f"{self._name(cell)}:p{times}"

    def _name(self, cell: str) -> str:
        name = f"{self._kernel_id}:{cell}"
        if len(name) > NAME_LENGTH_MAX:
            name = f"{self._kernel_id}:{hashlib.sha256(cell.encode('utf-8', 'replace')).hexdigest()[:32]}"
        return name
