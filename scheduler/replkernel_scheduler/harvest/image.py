"""All about jobs and gangs as plain records, from which other desks go on as if they were the first.

Law: what follows from the rest is not in it. The scheduler's core has an image of its own, which is part
of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from replkernel_scheduler.errors import ImageUnfit
from replkernel_scheduler.gangs.types import GangId, GangRecord
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.types import HostUsed, JobHosts, JobName, PastJob
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.types import HostName, LeaseId, UserName

if TYPE_CHECKING:
    from replkernel_scheduler.gangs.desk import Gangs
    from replkernel_scheduler.harvest.desk import Desk


class JobsImage(msgspec.Struct, frozen=True):
    """All about jobs; `renew_at` in the order in which leases are renewed, `past` in that of the ends."""

    now: float
    jobs: tuple[JobRecord, ...] = ()
    soon_at: float | None = None
    look_at: float | None = None
    renew_at: tuple[tuple[LeaseId, float], ...] = ()
    reach: tuple[tuple[UserName, tuple[HostName, ...]], ...] = ()
    past: tuple[PastJob, ...] = ()
    looked_at: float | None = None
    looked_until: JobName | None = None
    past_gpu_s: tuple[tuple[UserName, float], ...] = ()
    gangs: tuple[GangRecord, ...] = ()
    """In the order in which they came."""
    gangs_renew_at: tuple[tuple[GangId, float], ...] = ()
    used: tuple[HostUsed, ...] = ()
    cores_resume_at: JobName | None = None
    """As `looked_until`, of jobs on cores."""
    able: tuple[JobHosts, ...] = ()
    """Of those in `reach`, whose hosts cannot all start all jobs."""
    starts: int = 0
    """How many jobs were started on cores so far."""


class HarvestImage(msgspec.Struct, frozen=True):
    """Everything."""

    core: CoreImage
    jobs: JobsImage


def take(desk: Desk, gangs: Gangs, now: float) -> JobsImage:
    """Return the image of both desks between two events."""
    jobs = tuple([_apart(job) for job in desk.jobs.by_name.values()])
    renewals, told = tuple(desk.renew_at.items()), desk.reach.told
    reach = tuple([(owner, each.hosts) for owner, each in told.items()])
    able = tuple([each for each in told.values() if each != JobHosts(each.owner, each.hosts)])
    return JobsImage(
        now,
        jobs,
        desk.soon_at,
        desk.look_at,
        renewals,
        reach,
        tuple(desk.past),
        desk.looked_at,
        desk.looked_until,
        tuple(desk.past.gpu_s.items()),
        *gangs.image(),
        tuple(desk.processors.used.values()),
        desk.processors.resumes_at,
        able,
        desk.jobs.starts,
    )


def restore(kept: JobsImage, desk: Desk) -> None:
    """Let a desk without jobs go on from an image."""
    if desk.jobs.by_name:
        raise ImageUnfit("there are jobs already")
    for job in kept.jobs:
        desk.jobs.add(_apart(job))
    desk.jobs.starts = kept.starts
    desk.soon_at, desk.look_at, desk.renew_at = kept.soon_at, kept.look_at, dict(kept.renew_at)
    desk.reach.told.update({owner: JobHosts(owner, hosts) for owner, hosts in kept.reach})
    desk.reach.told.update({each.owner: each for each in kept.able})
    desk.looked_at, desk.looked_until = kept.looked_at, kept.looked_until
    desk.processors.resumes_at = kept.cores_resume_at
    desk.processors.used.update({used.host: used for used in kept.used})
    desk.past.restore(kept.past, kept.past_gpu_s)


def _apart(job: JobRecord) -> JobRecord:
    """Return a job that changes no more when the first one does."""
    return msgspec.structs.replace(job, leases=dict(job.leases), back=dict(job.back))
