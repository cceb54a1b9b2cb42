"""Where jobs can be started: the hosts on which their owners have agents, as far as that was told.

Law: an agent that cannot run one kind of jobs runs the others all the same, so a host counts job by job. An
owner of whom nothing was told is thought to reach any host.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.types import JobHosts
from replkernel_scheduler.types import HostName, UserName


class Reach:
    """What was told of each owner last."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.told: dict[UserName, JobHosts] = {}

    def of(self, job: JobRecord) -> tuple[HostName, ...] | None:
        """Return the hosts on which a job can be started; None: nothing was told."""
        told = self.told.get(job.spec.owner)
        if told is None:
            return None
        if job.cores is not None:
            return told.hosts if told.on_cores is UNSET else told.on_cores
        return told.hosts if told.across is UNSET or job.span == 1 else told.across

    def within(self, job: JobRecord, hosts: Iterable[HostName]) -> bool:
        """Say whether a job can be started on all of these hosts."""
        reach = self.of(job)
        return reach is None or set(hosts) <= set(reach)
