"""How jobs ask for GPUs: one by one, so that each can be given back alone, and less where that is refused.

Law: a job asks only for what is idle and nobody who waits has a claim on, and takes its wish back if it is
not there after all. The GPUs of a user's jobs together stay within his `gpu_quota`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replkernel_scheduler.events import (
    GpusAwaited,
    GpusWanted,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseWithdrawn,
)
from replkernel_scheduler.harvest.jobs import JobRecord, Jobs
from replkernel_scheduler.harvest.leasing import Leasing, Place
from replkernel_scheduler.types import KernelId, LeaseId, LeaseRequest, RequestId

LEASE_S = 86_400.0
RESTED_S = 120.0
"""What has lingered for so long is asked back for a job, where its owner's agents are known."""
JOBS_REQUEST = "job."
"""All requests of jobs begin so, and nobody else's may."""


def is_of_job(request: str) -> bool:
    """Tell whether a request, or the kernel that it names, is a job's."""
    return request.startswith(JOBS_REQUEST)


class Asking:
    """Asks for all jobs, one at a time."""

    def __init__(self, leasing: Leasing, jobs: Jobs) -> None:
        """Begin with nobody who asks."""
        self._leasing, self._jobs = leasing, jobs
        self._request: RequestId | None = None
        self._asker: JobRecord | None = None
        self.asked_back = 0
        """How many leases of kernels were ever asked back, for jobs or for cells."""

    def who(self, request: RequestId) -> JobRecord | None:
        """Return the job that asks by this request now."""
        return self._asker if request == self._request else None

    @property
    def is_open(self) -> bool:
        """Say whether a job asks now."""
        return self._request is not None

    def sizes(self, job: JobRecord, more_than: int, most: int) -> list[int]:
        """Return the numbers of GPUs that a job may run with, within these bounds, the largest first."""
        fit = [gpus for gpus in job.spec.type.iteration_s if more_than < gpus <= most]
        quota = self._leasing.gpu_quota(job.spec.owner)
        if fit and quota is not None:
            others = self._jobs.held_by(job.spec.owner) - job.held()
            within = [gpus for gpus in fit if others + gpus <= quota]
            if not within:
                allowed = f"{quota} GPU{'' if quota == 1 else 's'}"
                job.refused = (
                    f"Your other jobs hold {others} of the {allowed} that gpu_quota allows; "
                    f"this one needs at least {min(fit)}."
                )
            fit = within
        return sorted(fit, reverse=True)

    def ask_back(self, awaited: Iterable[GpusAwaited], jobs: Iterable[LeaseId], now: float) -> bool:
        """Have GPUs that rest come free, none of these leases of jobs; say whether any do."""
        before = self.asked_back
        self._leasing.feed(GpusWanted(tuple(awaited), tuple(jobs), now - RESTED_S), now)
        return self.asked_back > before

    def models(self, awaited: GpusAwaited, jobs: Iterable[LeaseId], now: float) -> set[str]:
        """Return of which models a host has all of this, or would if that rests and is asked back."""
        return self._leasing.models(GpusWanted((awaited,), tuple(jobs), now - RESTED_S))

    def ask(self, job: JobRecord, place: Place, sizes: list[int], now: float) -> bool:
        """Ask for what is missing on a host, then for less, as long as that is refused."""
        for gpus in sizes:
            job.refused = ""
            if gpus > job.held() and self.ask_for(job, [place] * (gpus - job.held()), now):
                return True
            if not job.refused:
                return False
        return False

    def ask_for(self, job: JobRecord, places: Sequence[Place], now: float) -> bool:
        """Ask for a GPU at each of these places; give them back if not all are there after all."""
        before, feed = set(job.leases), self._leasing.feed
        self._asker = job
        there = all(self._ask_for_one(job, place, now) for place in places)
        granted = [lease for name, lease in job.leases.items() if name not in before]
        for lease in granted:
            how = LeaseLingered if there else LeaseReleased
            feed(how(lease.lease, lease.fence), now)
        self._request = self._asker = None
        job.model = places[-1].model if job.leases else ""
        if not job.leases:
            job.host = None
        return there

    def _ask_for_one(self, job: JobRecord, place: Place, now: float) -> bool:
        """Ask for one GPU; take the wish back if it is not there."""
        spec, had = job.spec, len(job.leases)
        job.asked += 1
        request = RequestId(f"{JOBS_REQUEST}{spec.job}.{job.asked}")
        wish = LeaseRequest(
            request,
            KernelId(request),
            1,
            LEASE_S,
            (place.host,),
            spec.owner,
            place.model,
            spec.vram_gb,
            holder="job",
        )
        self._request = request
        self._leasing.feed(LeaseAsked(wish), now)
        if len(job.leases) == had:
            self._leasing.feed(LeaseWithdrawn(request), now)
        return len(job.leases) > had
