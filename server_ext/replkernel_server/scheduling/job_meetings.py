"""Jobs on several hosts: the launchers that agents of a job's user start for it on all but the first. Pure.

Law: only the agent of a job's first host has them started, for its newest attempt, on the GPUs that the job
has there. What an agent has of other attempts is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.types import JobEnded, JobName
from replkernel_scheduler.types import HostName, UserName

from replkernel.leasing import wire
from replkernel_server.scheduling.desk_words import Act, Feed, Send

MEETING = "job."
"""Launchers of a job are called so, and by its name, its attempt and chance."""


class Line(msgspec.Struct):
    """An agent that runs the jobs of its user on one host; `said`: it has told what it runs.

    `ranks`: it can also start the processes of cells on several hosts. `uses`: it tells what is used of its
    host, and runs jobs on cores. `spans`: it runs jobs on several hosts. `since`: when it said what it runs.
    """

    user: UserName
    host: HostName
    said: bool = False
    awaits: bool | None = None
    ranks: bool = False
    uses: bool = False
    since: float = 0.0
    spans: bool = False


class JobMeetings:
    """What is said of them."""

    def __init__(self, beside: HarvestCore) -> None:
        """Look at the jobs of a core."""
        self._jobs = beside.desk.jobs

    def meets(
        self,
        client: int,
        line: Line,
        meets: wire.JobMeets,
        agent_on: Callable[[UserName, HostName], int | None],
    ) -> Iterator[Act]:
        """Have launchers started on a job's other hosts; where one has no agent, the job stops, to go on."""
        job = self._job_of(line.user, meets.gang)
        right = job is not None and (job.spec.job, job.host) == (meets.job, line.host)
        others = job.hosts()[1:] if job is not None and right else []
        agents = {host: agent for host in others if (agent := agent_on(line.user, host)) is not None}
        if job is None or not others or len(agents) < len(others):
            yield Send(client, wire.StopJob(meets.job, meets.attempt, 0.0, False))
            return
        usable = job.usable_on()
        for host, agent in agents.items():
            gpus = tuple([str(gpu) for gpu in usable[host] if gpu in job.gpus])
            ranks = wire.StartRanks(meets.gang, gpus, job.spec.directory, meets.endpoint, meets.seal)
            yield Send(agent, ranks)

    def wants(self, line: Line, gang: str) -> bool:
        """Tell whether launchers that an agent has are a job's that runs there."""
        job = self._job_of(line.user, gang)
        return job is not None and line.host in job.hosts()[1:]

    def failed(self, user: UserName, failed: wire.RanksFailed) -> Iterator[Act]:
        """End a job that cannot be started on one of its hosts."""
        job = self._job_of(user, failed.gang)
        if job is not None:
            yield Feed(JobEnded(job.spec.job, job.attempt, "failed", failed.why))

    def beginning_on(self, line: Line) -> list[JobRecord]:
        """Return the jobs that begin on a host which is not their first."""
        return [
            job
            for job in (self._jobs.by_name.values() if self._jobs.across else ())
            if job.spec.owner == line.user and job.state == "starting" and line.host in job.hosts()[1:]
        ]

    def _job_of(self, user: UserName, gang: str) -> JobRecord | None:
        """Return whose launchers are called so, if they are of a user's job's newest attempt."""
        name, _, rest = gang.removeprefix(MEETING).rpartition(".")
        name, _, attempt = name.rpartition(".")
        job = self._jobs.by_name.get(JobName(name))
        if not gang.startswith(MEETING) or not rest or job is None or job.spec.owner != user:
            return None
        return job if str(job.attempt) == attempt and job.state != "waiting" else None
