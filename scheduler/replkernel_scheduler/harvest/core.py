"""The scheduler's core with jobs and gangs beside its kernels: one state machine around the other.

Law: GPUs are leased by the scheduler's core alone, so a GPU is in one lease, a job's like a cell's. What it
says of jobs' leases goes to their desk, of gangs' to theirs, and comes out as what is to be done about them;
all else passes as it is. Same events, same times: same effects, also from an image on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import (
    Effect,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    ReclaimLease,
    UsageRecorded,
)
from replkernel_scheduler.events import (
    BookingCancelled,
    BookingMade,
    Event,
    GpusWanted,
    HostDown,
    HostDrained,
    HostUndrained,
    HostUp,
    KernelEnded,
    LeaseWithdrawn,
    TimeReached,
)
from replkernel_scheduler.gangs.desk import Gangs
from replkernel_scheduler.gangs.laws import check as check_gangs
from replkernel_scheduler.gangs.types import GangAsked, GangLeft
from replkernel_scheduler.harvest import image, laws
from replkernel_scheduler.harvest.desk import Desk
from replkernel_scheduler.harvest.image import HarvestImage, JobsImage
from replkernel_scheduler.harvest.leasing import Pace
from replkernel_scheduler.harvest.types import (
    HarvestEffect,
    HarvestEvent,
    HostJobs,
    HostUsed,
    JobEnded,
    JobHoldAsked,
    JobHosts,
    JobProgress,
    JobRuns,
    JobsDue,
    JobStopAsked,
    JobStopped,
    JobSubmitted,
    JobView,
)
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.policies.discipline_easy import Easy
from replkernel_scheduler.policies.queues_single import SingleQueue
from replkernel_scheduler.types import HostName, LeaseRequest, Room, Size, UserName

ROOM = (HostUp, HostUndrained, LeaseWithdrawn, KernelEnded, BookingMade, BookingCancelled, TimeReached)
"""What may make room for a gang, beside the ends of leases."""
HOSTS = (HostUp, HostDown, HostDrained, HostUndrained)
"""What changes a host's cores and memory, or takes them away."""
MULTIPLICITY = 2
"""So many processes a core has at most where nobody says otherwise: SQ(2)."""


class HarvestCore:
    """Kernels' leases as the scheduler's core has them, and jobs in what they leave."""

    def __init__(
        self,
        core: SchedulerCore,
        pace: Pace | None = None,
        queues: Queues | None = None,
        discipline: Discipline | None = None,
    ) -> None:
        """Begin with no jobs beside what `core` has; from here on it is driven through this alone.

        `queues` and `discipline` are for jobs on cores alone.
        """
        self.core = core
        self.now = float("-inf")
        self._out: list[HarvestEffect] = []
        self.desk = desk = Desk(
            self, self._out.append, pace or Pace(), queues or SingleQueue(MULTIPLICITY), discipline or Easy()
        )
        core.beside(desk.jobs.count_on_cores)
        self.gangs = gangs = Gangs(self, self._out.append)
        self._deciders: dict[type[Any], Callable[[Any, float], None]] = {
            JobSubmitted: desk.submitted,
            JobStopAsked: desk.stop_asked,
            JobHoldAsked: desk.hold_asked,
            JobHosts: desk.reaches,
            JobRuns: desk.runs,
            JobProgress: desk.progress,
            JobStopped: desk.stopped,
            JobEnded: desk.ended,
            HostUsed: desk.uses,
            HostJobs: desk.host_has,
            JobsDue: self._due,
            GangAsked: gangs.asked,
            GangLeft: gangs.left,
        }

    def handle(self, event: HarvestEvent, now: float) -> list[HarvestEffect]:
        """Take one event that happened at `now` and return what follows from it.

        Raises what the scheduler's core raises: ValueError if the time went back, UnexpectedEvent.
        """
        if now < self.now:
            raise ValueError(f"The clock went back: from {self.now} to {now}.")
        decide = self._deciders.get(type(event))
        if decide is None:
            self.feed(event, now)  # type: ignore[arg-type]
            if isinstance(event, HOSTS):
                self.desk.processors.host_changed(event.host, now)
        else:
            timer = self.core.deadline()
            if timer is not None and timer < now:
                self.feed(TimeReached(), now)
            decide(event, now)
        self.desk.settle(now)
        while self.gangs.unsettled:
            self.gangs.settle(now)
            self.desk.settle(now)
        self._give_back_hosts()
        self.now = now
        out = self._out.copy()
        self._out.clear()
        return out

    def _give_back_hosts(self) -> None:
        """Have drained hosts released that the last job on cores has left."""
        left = self.desk.jobs.left
        while left:
            self._out += self.core.left(left.pop(0))

    def deadline(self) -> float | None:
        """Return when `handle(TimeReached(), …)` is due."""
        return self.core.deadline()

    def jobs_due(self) -> float | None:
        """Return when `handle(JobsDue(), …)` is due; of what is due at one time it comes last."""
        jobs, gangs = self.desk.due_at(), self.gangs.due_at()
        return jobs if gangs is None else gangs if jobs is None else min(jobs, gangs)

    def _due(self, _: JobsDue, now: float) -> None:
        self.desk.due(now)
        self.gangs.due(now)

    def jobs(self) -> list[JobView]:
        """Return the jobs that are not over, in the order in which they came."""
        return [job.view() for job in self.desk.jobs.by_name.values()]

    def image(self) -> HarvestImage:
        """Return the whole state, but for the dice."""
        return HarvestImage(self.core.image(), self.jobs_image())

    def jobs_image(self) -> JobsImage:
        """Return what an image has beside that of the scheduler's core."""
        return image.take(self.desk, self.gangs, self.now)

    def restore(self, kept: HarvestImage) -> None:
        """Go on from an image; raises ImageUnfit if it cannot be. Nothing may have happened here before."""
        self.core.restore(kept.core)
        self.now = kept.jobs.now
        image.restore(kept.jobs, self.desk)
        self.gangs.restore(kept.jobs.gangs, kept.jobs.gangs_renew_at)

    def check_invariants(self) -> None:
        """Raise InvariantBroken if a law does not hold."""
        self.core.check_invariants()
        view = self.core.view()
        laws.check(view, self.desk)
        check_gangs(view, self.gangs)

    # -- what the desk knows of the core ------------------------------------------------------------

    def feed(self, event: Event, now: float) -> None:
        """Hand an event to the scheduler's core, and see to what it says of jobs."""
        for effect in self.core.handle(event, now):
            if not self._is_of_jobs(effect, now) and not self._is_of_gangs(effect):
                self._out.append(effect)
        if isinstance(event, ROOM):
            self.gangs.something_came_free()

    def room(self, host: HostName, gpu_model: str, vram_gb: float) -> Room:
        """Return what is idle on a host."""
        return self.core.room(host, gpu_model, vram_gb)

    def offers(self, host: HostName, gpu_model: str, vram_gb: float) -> bool:
        """Say whether a host has such GPUs, and no cell waits for any."""
        return self.core.offers(host, gpu_model, vram_gb)

    def models(self, wanted: GpusWanted) -> set[str]:
        """Return of which models a host has all that such a job needs, or would get it back."""
        return self.core.models(wanted)

    def hosts(self) -> list[HostName]:
        """Return the hosts that are up."""
        return self.core.hosts_up()

    def size_of(self, host: HostName) -> Size | None:
        """Return what a host has of cores and memory; None: it is gone, or is to be emptied."""
        return self.core.size_of(host)

    def is_there(self, host: HostName) -> bool:
        """Say whether a host is known, however it stands."""
        return self.core.is_there(host)

    def gpu_quota(self, user: UserName) -> int | None:
        """Return how many GPUs a user may have at once; None: as many as there are."""
        return self.core.gpu_quota(user)

    def over_quota(self, wish: LeaseRequest, now: float) -> str:
        """Say which quota of its user a request would break, with all that he has and waits for."""
        return self.core.over_quota(wish, now)

    def keeps(self) -> bool:
        """Say whether what lingers is never asked back."""
        return self.core.keeps

    def known(self) -> list[HostName]:
        """Return the hosts that are up, or may come back into sight."""
        return self.core.hosts_known()

    def gpus_of(self, host: HostName, wish: LeaseRequest) -> int:
        """Return the most GPUs that a host could lease to such a request, with nothing else on it."""
        return self.core.gpus_of(host, wish)

    def models_of(self, host: HostName, wish: LeaseRequest) -> dict[str, int]:
        """Return of which models a host could lease to a request, and how many with nothing else on it."""
        return self.core.models_of(host, wish)

    def why_never(self, wish: LeaseRequest) -> str:
        """Say why no host that is up, or can be had, could serve a request; "" if one could."""
        return self.core.why_never(wish)

    def idle_for(self, host: HostName, wish: LeaseRequest) -> bool:
        """Say whether a host has all of a request idle, and nobody who waits has a claim there."""
        return self.core.idle_for(host, wish)

    def _is_of_jobs(self, effect: Effect, now: float) -> bool:
        desk = self.desk
        match effect:
            case LeaseGranted():
                return desk.granted(effect.lease, now)
            case LeaseEnded():
                return desk.lease_ended(effect.lease, effect.why, now)
            case ReclaimLease():
                return desk.reclaimed(effect.lease, effect.until, now)
            case LeaseRefused():
                return desk.refused(effect.request, effect.why)
            case LeaseQueued():
                return desk.asking.who(effect.request) is not None
        return False

    def _is_of_gangs(self, effect: Effect) -> bool:
        gangs = self.gangs
        match effect:
            case LeaseGranted():
                return gangs.granted(effect.lease)
            case LeaseEnded():
                return gangs.lease_ended(effect.lease, effect.why)
            case LeaseRefused():
                return gangs.refused(effect.request, effect.why)
            case LeaseQueued():
                return gangs.queued(effect.request, effect.estimate_s)
            case UsageRecorded():
                return self._recorded(effect)
        return False

    def _recorded(self, effect: UsageRecorded) -> bool:
        """Have the row of a gang's lease name the kernel whose cell it was."""
        kernel_id = self.gangs.kernel_of(effect.usage.kernel_id)
        if kernel_id is not None:
            self._out.append(UsageRecorded(msgspec.structs.replace(effect.usage, kernel_id=kernel_id)))
        return kernel_id is not None
