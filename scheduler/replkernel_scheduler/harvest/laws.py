"""The laws of jobs beside notebooks, checked from the tables after every event of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replkernel_scheduler.errors import InvariantBroken
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.types import LeaseId
from replkernel_scheduler.view import ClusterView, LeaseView

if TYPE_CHECKING:
    from replkernel_scheduler.harvest.desk import Desk


def check(view: ClusterView, desk: Desk) -> None:
    """Raise InvariantBroken if a law does not hold."""
    leases = {each.lease.lease: each for each in view.leases}
    held = [name for job in desk.jobs.by_name.values() for name in job.leases]
    _require(len(held) == len(set(held)), "a lease is of two jobs")
    _require(set(held) == set(desk.jobs.of_lease), "a lease is of a job that does not have it")
    _require(set(held) == set(desk.renew_at), "a job's lease is never renewed")
    _require(list(desk.renew_at.values()) == sorted(desk.renew_at.values()), "renewals are not in order")
    _require(not desk.asking.is_open, "a job still asks")
    leaving = [job for job in desk.jobs.by_name.values() if job.leaves is not None]
    _require(len(leaving) == len({job.leaves for job in leaving}), "two jobs make room for one")
    _require(len(leaving) == len({job.host for job in leaving}), "two jobs make room on one host")
    for job in desk.jobs.by_name.values():
        if job.cores is None:
            _job(job, leases)
    desk.processors.check()


def _job(job: JobRecord, leases: dict[LeaseId, LeaseView]) -> None:
    _require((job.state == "waiting") == (not job.leases), "a job waits with GPUs, or runs without")
    _require(job.state != "waiting" or job.ending is None, "a job that ends waits")
    for name, lease in job.leases.items():
        known = leases.get(name)
        _require(known is not None, "a job has a lease that is over")
        assert known is not None
        _require(known.lease.gpus == lease.gpus and known.lease.fence == lease.fence, "a job's lease changed")
        _require(lease.host == job.host or job.span > 1, "a job is on two hosts")
        back = known.phase == "reclaiming"
        _require(back or known.phase == "lingering", "cells would wait for a job's lease")
        _require(back == (name in job.back), "a job does not know what is wanted back")
    _require(job.leaves is None or job.state == "stopping", "a job makes room, and runs on")
    if job.state in ("starting", "running"):
        _require(len(job.gpus) in job.spec.type.iteration_s, "a job runs in a shape that it does not allow")
        _require(not job.on_hold and job.ending is None, "a job runs that is to wait, or to end")
        if job.span > 1:
            _across(job)
        _require(set(job.gpus) <= set(job.usable()), "a job runs on GPUs that are not its own to use")
    _require(job.state == "stopping" or not job.back, "a job runs on though GPUs are wanted back")


def _across(job: JobRecord) -> None:
    each = [len(set(gpus) & set(job.gpus)) for gpus in job.usable_on().values()]
    _require(len(each) == job.span, "a job runs on other numbers of hosts than it wants")
    _require(len(set(each)) == 1, "a job has more GPUs on one host than on another")
    _require(job.host == job.hosts()[0], "rank 0 is not on the first host")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantBroken(what)
