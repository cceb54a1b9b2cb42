"""Why cells have waited for GPUs beside jobs, by what a scheduler has recorded.

A cell waits for others as long as their cells, and those that came before it, leave it too few GPUs: it would
without jobs as well. It waits for what leaves from when that is asked to until it has. All else is the
scheduler's own delay. Times are those of the journal, so a busy machine makes nothing of it longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, ReclaimLease
from replkernel_scheduler.events import HostUp, LeaseAsked, LeaseWithdrawn
from replkernel_scheduler.harvest.asking import is_of_job
from replkernel_scheduler.harvest.types import (
    HarvestEffect,
    HarvestEvent,
    JobEnded,
    JobLeaseEnded,
    JobName,
    JobRuns,
    JobStopped,
    ReshapeJob,
    StartJob,
    StopJob,
)
from replkernel_scheduler.types import HostName, LeaseId

IN_ITS_TIME_S = 60.0
"""A job that nobody waits for has so long to leave."""


class Decided(NamedTuple):
    """What a core heard at a time, and what followed."""

    at: float
    event: HarvestEvent
    effects: list[HarvestEffect]


class CellWait(NamedTuple):
    """How long a cell waited from its request to its grant, and what for."""

    request: str
    asked_at: float
    whole_s: float
    for_others_s: float
    for_leaving_s: float

    @property
    def own_s(self) -> float:
        """Return what is left: nothing but the scheduler kept it waiting."""
        return self.whole_s - self.for_others_s - self.for_leaving_s


class _Waiting:
    """A request that waits."""

    def __init__(self, at: float, gpus: int) -> None:
        self.at, self.gpus = at, gpus
        self.others_s = self.leaving_s = 0.0


class _Cluster:
    """Who holds what, and who leaves."""

    def __init__(self) -> None:
        self.gpus: dict[HostName, int] = {}
        self.held: dict[LeaseId, int] = {}
        self.waiting: dict[str, _Waiting] = {}
        self.leaving: dict[JobName | LeaseId, float] = {}
        """Until when each is to have left."""
        self.found: list[CellWait] = []

    def lasts(self, begin: float, end: float) -> None:
        """Count a time in which nothing happens: what should have left by now is no excuse."""
        leaving_s = max(0.0, min(end, max(self.leaving.values(), default=begin)) - begin)
        before = sum(self.held.values())
        for cell in self.waiting.values():
            before += cell.gpus
            cell.leaving_s += leaving_s
            if before > sum(self.gpus.values()):
                cell.others_s += end - begin - leaving_s

    def hears(self, at: float, event: HarvestEvent) -> None:
        match event:
            case HostUp(host, gpus):
                self.gpus[host] = len(gpus)
            case LeaseAsked(wish) if not is_of_job(wish.request) and wish.gpus:
                self.waiting.setdefault(str(wish.request), _Waiting(at, wish.gpus))
            case LeaseWithdrawn(request):
                self.waiting.pop(str(request), None)
            case JobStopped(job) | JobEnded(job):
                self.leaving.pop(job, None)

    def sees(self, at: float, effect: HarvestEffect) -> None:
        match effect:
            case LeaseGranted():
                lease = effect.lease
                self.held[lease.lease] = len(lease.gpus)
                cell = self.waiting.pop(str(lease.request), None)
                if cell is not None:
                    request, whole_s = str(lease.request), at - cell.at
                    self.found.append(CellWait(request, cell.at, whole_s, cell.others_s, cell.leaving_s))
            case LeaseEnded():
                self.held.pop(effect.lease.lease, None)
                self.leaving.pop(effect.lease.lease, None)
            case ReclaimLease():
                self.leaving[effect.lease.lease] = effect.until
            case StopJob(job):
                self.leaving[job] = at + IN_ITS_TIME_S if effect.until is None else effect.until
            case JobLeaseEnded(job):
                self.leaving.pop(job, None)


def cell_waits(decided: Iterable[Decided]) -> list[CellWait]:
    """Return the waits of all cells that were given GPUs, in the order of their grants."""
    cluster, before = _Cluster(), 0.0
    for at, event, effects in decided:
        cluster.lasts(before, at)
        before = at
        cluster.hears(at, event)
        for effect in effects:
            cluster.sees(at, effect)
    return cluster.found


class Reshaped(NamedTuple):
    """A job that went on with another number of GPUs (0: none), and how long it did not train for that."""

    before: int
    after: int
    stood_s: float | None


def reshapes(decided: Iterable[Decided], job: JobName) -> list[Reshaped]:
    """Return how a job was reshaped: from its last words to stop, or to change, until it trained again."""
    found: list[Reshaped] = []
    shape, asked_at, begins = 0, None, None
    for at, event, effects in decided:
        if isinstance(event, JobRuns) and event.job == job and begins is not None:
            was, after, since = begins
            found.append(Reshaped(was, after, None if since is None else at - since))
            begins = None
        for effect in effects:
            match effect:
                case StopJob() if effect.job == job:
                    asked_at = at
                case StartJob() if effect.spec.job == job:
                    begins = (shape, len(effect.gpus), asked_at if shape else None)
                    shape = len(effect.gpus)
                case ReshapeJob() if effect.job == job:
                    begins = (shape, len(effect.gpus), at)
                    shape = len(effect.gpus)
        if isinstance(event, JobStopped) and event.job == job and begins is None:
            found.append(Reshaped(shape, 0, None))
            shape = 0
    return found
