"""Cells that may be paused for shorter ones, and requests for which they are.

Law: only whole GPUs' leases of running cells are in `pausable`; a newcomer waits as long as it is here.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

from replkernel_scheduler.hosts import LeaseRecord
from replkernel_scheduler.pool.arrivals import Arrivals
from replkernel_scheduler.pool.types import Context, Deferral
from replkernel_scheduler.types import HostName, KernelId, LeaseId, RequestId

NewcomerPhase: TypeAlias = Literal["asked", "deferred", "pausing"]
"""asked: nobody has said yet for how long it is deferred. pausing: others are told to stand still for it."""
PAUSE_S_GUESS = 2.0
"""So long it is thought to take until a cell has left its GPUs, before one has."""
JUDGED_KEPT = 200
"""Of no more deferrals it is kept what they needed: a predictor learns from as many (spec 3.4)."""


class Newcomer:
    """A request for which the cells of `victims` are to be paused on `host`; nobody else stops these."""

    __slots__ = ("context", "host", "phase", "victims")

    def __init__(self, host: HostName, victims: tuple[LeaseId, ...], context: Context) -> None:
        """Begin with the question for how long it is deferred."""
        self.host, self.victims, self.context = host, victims, context
        self.phase: NewcomerPhase = "asked"


class Pauses:
    """All of both."""

    __slots__ = (
        "arrivals",
        "judged",
        "judged_count",
        "newcomers",
        "outlasted",
        "owed",
        "pausable",
        "pause_s",
    )

    def __init__(self) -> None:
        """Start with none."""
        self.pausable: dict[LeaseId, LeaseRecord] = {}
        self.newcomers: dict[RequestId, Newcomer] = {}
        self.owed: dict[KernelId, None] = {}
        """Kernels whose cell was paused, and has not asked to go on yet."""
        self.outlasted: dict[KernelId, int] = {}
        """How many of a kernel's last cells, one after the other, took far longer than they said."""
        self.arrivals = Arrivals()
        self.judged: deque[Deferral] = deque(maxlen=JUDGED_KEPT)
        self.judged_count = 0
        self.pause_s = PAUSE_S_GUESS

    @property
    def unused(self) -> bool:
        """Whether nothing here differs from the beginning, but leases."""
        return not (self.newcomers or self.owed or self.outlasted or self.arrivals.times or self.judged_count)

    def locked(self) -> set[LeaseId]:
        """Return the leases that a deferral has claimed, or that are being left."""
        return {lease for newcomer in self.newcomers.values() for lease in newcomer.victims}
