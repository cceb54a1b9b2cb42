"""Jobs on several hosts: the launchers that agents of a job's user start for it on all but the first. Pure.

Laws: only the agent of a job's first host has them started, for its newest attempt, on the GPUs that the job
has there. What an agent has of other attempts is ended. The first host ends the others when a job is to stop;
their agents hear of each stop as well, for it may not: they end in time what is left, at once where nothing
is to be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import NamedTuple

import msgspec
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.types import JobEnded, JobName, StopJob
from replkernel_scheduler.types import HostName, UserName

from replkernel.leasing import wire
from replkernel.ranks.words import JOBS_GANG
from replkernel_server.scheduling.desk_words import Act, Feed, Send

LEFT_OUT_S = 120.0
IN_ITS_TIME_S = 60.0
"""A job that nobody waits for has so long to be saved and to end."""
ENDS_S = 7.0
"""What a launcher has to end is off within this."""


class LeftOut(NamedTuple):
    """Until when a host is left out, and why."""

    until: float
    why: str


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
        self.left_out: dict[tuple[UserName, HostName], LeftOut] = {}

    def leave_out(self, job: JobRecord, host: HostName, why: str, now: float) -> None:
        """Have none of a user's jobs started on a host for a while where one of them could not begin."""
        if host in job.hosts():
            self.left_out[job.spec.owner, host] = LeftOut(now + LEFT_OUT_S, why)

    def deadline(self) -> float:
        """Return when the first host may be used again."""
        return min([out.until for out in self.left_out.values()], default=inf)

    def back(self, now: float) -> set[UserName]:
        """Have those used again that were left out for long enough; return whose they are."""
        over = [each for each, out in self.left_out.items() if out.until <= now]
        for each in over:
            del self.left_out[each]
        return {user for user, _ in over}

    def why_left_out(self, user: UserName) -> str:
        """Say why a host of a user's is left out, in a clause; nothing if none is."""
        found = ((host, out) for (owner, host), out in self.left_out.items() if owner == user)
        return next((f"host {host} is left out for a while: {out.why}" for host, out in found), "")

    def meets(
        self,
        client: int,
        line: Line,
        meets: wire.JobMeets,
        agent_on: Callable[[UserName, HostName], int | None],
    ) -> Iterator[Act]:
        """Have launchers started on a job's other hosts; where one has no agent, the job stops, to go on."""
        job = self._job_of(line.user, meets.gang)
        begins = job is not None and job.state in ("starting", "running")
        right = begins and job is not None and (job.spec.job, job.host) == (meets.job, line.host)
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

    def stops(
        self, stop: StopJob, lines: Mapping[int, Line], within_s: float, *, hears: bool
    ) -> Iterator[Act]:
        """Have the other hosts end what a job that is to stop has there, if its first host does not."""
        job = self._jobs.by_name.get(stop.job)
        if job is None or job.span == 1 or job.attempt != stop.attempt or stop.why == "stale":
            return
        gang = f"{JOBS_GANG}{job.spec.job}"
        for client, line in lines.items():
            if line.user == job.spec.owner and line.spans and line.host != stop.host:
                for said in _endings(gang, within_s if stop.saves else 0.0, hears=hears):
                    yield Send(client, said)

    def left_over(
        self, line: Line, gang: str, now: float, agent_on: Callable[[UserName, HostName | None], int | None]
    ) -> list[wire.StopRanks]:
        """Say how launchers that an agent has are ended; nothing if they are a job's that runs there."""
        if not gang.startswith(JOBS_GANG):
            return [wire.StopRanks(gang)]
        job = self._job_of(line.user, gang, grows=True)
        if job is None or line.host not in job.hosts() or line.host == job.host:
            return _endings(gang, 0.0, hears=True)
        if job.state != "stopping":
            return []
        ends = job.gone_at is not None or job.why == "lease over"
        within_s = 0.0 if ends else min(job.back.values(), default=now + IN_ITS_TIME_S) - now
        return _endings(gang, within_s, hears=agent_on(line.user, job.host) is not None)

    def failed(
        self,
        line: Line | None,
        user: UserName,
        failed: wire.RanksFailed,
        agents_on: Callable[[UserName, HostName], list[int]],
        now: float,
    ) -> Iterator[Act]:
        """End a job that cannot be started on one of its hosts, or have it go on without that one for now."""
        job = self._job_of(user, failed.gang)
        if job is None or job.host is None:
            return
        if not failed.for_now or line is None:
            yield Feed(JobEnded(job.spec.job, job.attempt, "failed", failed.why))
            return
        self.leave_out(job, line.host, failed.why, now)
        for first in agents_on(user, job.host):
            yield Send(first, wire.StopJob(job.spec.job, job.attempt, IN_ITS_TIME_S))

    def beginning_on(self, line: Line) -> list[JobRecord]:
        """Return the jobs that begin on a host which is not their first."""
        return [
            job
            for job in (self._jobs.by_name.values() if self._jobs.across else ())
            if job.spec.owner == line.user and job.state == "starting" and line.host in job.hosts()[1:]
        ]

    def _job_of(self, user: UserName, gang: str, *, grows: bool = False) -> JobRecord | None:
        """Return whose launchers are called so, if they are of a user's job's newest attempt.

        `grows`: they may also be of the one before, which is saved still, so that the job grows.
        """
        name, _, rest = gang.removeprefix(JOBS_GANG).rpartition(".")
        name, _, attempt = name.rpartition(".")
        job = self._jobs.by_name.get(JobName(name))
        if not gang.startswith(JOBS_GANG) or not rest or job is None or job.spec.owner != user:
            return None
        good = {str(job.attempt)}
        if grows and job.state in ("starting", "stopping") and job.changes[-1].why == "more idle":
            good.add(str(job.attempt - 1))
        return job if attempt in good and job.state != "waiting" else None


def _endings(gang: str, within_s: float, *, hears: bool) -> list[wire.StopRanks]:
    """Say how launchers are ended at last: so that all is off in time, where nobody else has ended them.

    Where the first host does not hear (`hears`) they ask it to save.
    """
    at_once = within_s <= ENDS_S
    last = wire.StopRanks(gang, 0.0 if at_once else within_s - ENDS_S, saves=False)
    return [last] if hears or at_once else [wire.StopRanks(gang), last]
