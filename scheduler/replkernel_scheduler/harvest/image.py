"""The whole state of jobs as plain records, from which another desk goes on as if it were the first.

Law: what follows from the rest is not in it. The scheduler's core has an image of its own, which is part
of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from replkernel_scheduler.errors import ImageUnfit
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.types import LeaseId

if TYPE_CHECKING:
    from replkernel_scheduler.harvest.desk import Desk


class HarvestImage(msgspec.Struct, frozen=True):
    """Everything; `renew_at` in the order in which leases are renewed."""

    core: CoreImage
    now: float
    jobs: tuple[JobRecord, ...]
    soon_at: float | None
    look_at: float | None
    renew_at: tuple[tuple[LeaseId, float], ...]


def take(core: CoreImage, desk: Desk, now: float) -> HarvestImage:
    """Return the image of a desk between two events."""
    jobs = tuple([_apart(job) for job in desk.jobs.by_name.values()])
    return HarvestImage(core, now, jobs, desk.soon_at, desk.look_at, tuple(desk.renew_at.items()))


def restore(kept: HarvestImage, desk: Desk) -> None:
    """Let a desk without jobs go on from an image."""
    if desk.jobs.by_name:
        raise ImageUnfit("there are jobs already")
    for job in kept.jobs:
        desk.jobs.add(_apart(job))
    desk.soon_at, desk.look_at, desk.renew_at = kept.soon_at, kept.look_at, dict(kept.renew_at)


def _apart(job: JobRecord) -> JobRecord:
    """Return a job that changes no more when the first one does."""
    return msgspec.structs.replace(job, leases=dict(job.leases), back=dict(job.back))
