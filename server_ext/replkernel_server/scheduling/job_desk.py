"""The agents that run jobs, and what is said between them and the core with jobs beside kernels. Pure.

Law: a job's command goes to an agent of its own user alone, and an agent speaks of its own user's jobs. What
is told follows from what is durable; what a lost connection swallowed is said again, for an agent that comes
back tells all that it has, and the core compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

import msgspec
from msgspec import UNSET, UnsetType
from replkernel_scheduler.elastic.types import JobType
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.types import (
    HarvestEffect,
    HarvestEvent,
    HostJobs,
    HostUsed,
    JobEnded,
    JobHosts,
    JobLeaseEnded,
    JobName,
    JobOver,
    JobProgress,
    JobRuns,
    JobSpec,
    JobStopped,
    ReshapeJob,
    StartJob,
    StopJob,
)
from replkernel_scheduler.types import HostName, UserName

from replkernel.leasing import wire
from replkernel_server.scheduling.desk_words import Act, Feed, Send
from replkernel_server.scheduling.host_use import HostUses, Speaker
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.job_meetings import IN_ITS_TIME_S, JobMeetings, Line

LEFT_EVERY_S = 20.0
"""What a job has left is journalled no more often."""
ENDS = ("done", "failed")
"""They count also of a job that was given up where it ran, and waits: nothing newer has begun."""
OFF = ("stopped", *ENDS)
TOLD_MAX = 10_000
SEEN_S_MIN = 5.0
"""Nothing is guessed from less than this of an attempt's epochs."""
LEFT_S_MAX = 1e12
"""A guess that is longer, or that is no number, is none."""


class Told(msgspec.Struct):
    """What a job's program told last: `epoch` at `at`, since it was `first` at `first_at` in this attempt."""

    attempt: int
    said: str = ""
    epoch: float | None = None
    loss: float | None = None
    at: float = 0.0
    first: float = 0.0
    first_at: float = 0.0
    left_at: float = 0.0
    speeds: dict[int, float] = {}
    """Epochs a second with each number of GPUs of its model, as seen in its attempts."""
    on_models: dict[str, dict[int, float]] = {}
    """The same of each model, that one among them."""

    def ran_with(self, gpus: int) -> None:
        """Take note of how fast the attempt is with its GPUs."""
        if self.epoch is not None and self.epoch > self.first and self.at >= self.first_at + SEEN_S_MIN:
            speed = (self.epoch - self.first) / (self.at - self.first_at)
            if 0.0 < speed < inf:  # The smallest epochs of all, by their time, are none.
                self.speeds[gpus] = speed

    def done_since(self, gpus: int, now: float) -> float:
        """Return how many epochs an attempt that runs with its GPUs is thought to have done since it told."""
        return self.speeds.get(gpus, 0.0) * (now - self.at) if self.first_at else 0.0

    def ends_in(self, kind: JobType, epochs: float | None, done: float = 0.0) -> dict[int, float]:
        """Return how long the epochs that are left take with each number of GPUs; `done` more are over.

        A number that was not seen is thought to be as fast as the type says, beside the nearest that was.
        """
        if epochs is None or self.epoch is None or not self.speeds:
            return {}
        left, found = max(0.0, epochs - self.epoch - done), {}
        for gpus in sorted(kind.iteration_s):
            seen = min(self.speeds, key=lambda seen: (abs(seen - gpus), seen))
            share = kind.rate(gpus) / kind.rate(seen) if seen in kind.iteration_s else 1.0
            speed = self.speeds[seen] * share
            if speed > 0.0 and left / speed <= LEFT_S_MAX:
                found[gpus] = left / speed
        return found

    def left_s(self, epochs: float | None) -> float | None:
        """Return how long the epochs that are left take with the GPUs of this attempt, as far as known."""
        if epochs is None or self.epoch is None or self.epoch <= self.first:
            return None
        if self.at < self.first_at + SEEN_S_MIN:  # Words that come together tell no speed.
            return None
        left_s = max(0.0, epochs - self.epoch) * (self.at - self.first_at) / (self.epoch - self.first)
        return left_s if left_s <= LEFT_S_MAX else None


def _kept(job: JobRecord) -> Told:
    """Return what is known of a job whose program has told nothing since this scheduler began."""
    on_models = {model: dict(speeds) for model, speeds in job.speeds_on.items()}
    return Told(0, epoch=job.epoch, loss=job.loss, on_models=on_models or {job.model: dict(job.speeds)})


def _begun(name: JobName, effect: HarvestEffect) -> int | None:
    """Return which attempt of a job begins with an effect, if one does."""
    match effect:
        case StartJob(spec, attempt) if spec.job == name:
            return attempt
        case ReshapeJob(job, attempt) if job == name:
            return attempt
    return None


class JobDesk:
    """All lines, and what was told of jobs.

    `avoids` says which hosts are not for jobs, `offers` whether a host is up by a user's offer too.
    """

    def __init__(
        self,
        beside: HarvestCore,
        avoids: Callable[[HostName], bool],
        offers: Callable[[UserName, HostName], bool],
        now: float = 0.0,
        away_s: float = inf,
    ) -> None:
        """Begin without agents: those whose jobs run have `away_s` to come back."""
        self._beside, self._avoids, self._offers, self._away_s = beside, avoids, offers, away_s
        self._uses = HostUses()
        self.meetings = JobMeetings(beside)
        self.lines: dict[int, Line] = {}
        self.told_of: dict[JobName, Told] = {}
        self._lost: dict[tuple[UserName, HostName], float] = {}
        """Until when an agent whose jobs run on a host is waited for."""
        for job in beside.desk.jobs.by_name.values():
            if job.host is not None:
                self._lost[job.spec.owner, job.host] = now + away_s

    # -- agents come and go ---------------------------------------------------------------------------

    def joins(self, client: int, who: Identity, host: HostName) -> None:
        """Take an agent in; it has not said yet what it runs."""
        self.lines[client] = Line(who.user, host)

    def left(self, client: int, now: float) -> Iterator[Act]:
        """Have nothing more started where nobody starts it; what runs there is waited for."""
        line = self.lines.pop(client, None)
        if line is None:
            return
        runs = any(job.spec.owner == line.user for job in self._beside.desk.jobs.on(line.host))
        if runs and self.line_of(line.user, line.host) is None:
            self._lost.setdefault((line.user, line.host), now + self._away_s)
        yield from self._reaches(line.user)
        for job in self.meetings.beginning_on(line):
            for first in self._lines(line.user, job.host):
                yield Send(first, wire.StopJob(job.spec.job, job.attempt, IN_ITS_TIME_S))

    def deadline(self) -> float:
        """Return when the first agent will have been away for too long."""
        return min(self.meetings.deadline(), min(self._lost.values(), default=inf))

    def away_until(self, job: JobRecord) -> float | None:
        """Return until when the agent of a job's host is waited for, if it is away."""
        return None if job.host is None else self._lost.get((job.spec.owner, job.host))

    def due(self, now: float) -> Iterator[Act]:
        """Give up what runs where no agent came back: its jobs go on elsewhere."""
        for owner in sorted(self.meetings.back(now)):
            yield from self._reaches(owner)
        for user, host in [lost for lost, at in self._lost.items() if at <= now]:
            del self._lost[user, host]
            yield from self._reaches(user)
            yield Feed(HostJobs(host, (), user))
            yield from self._tells_used(host)

    def offered(self, host: HostName) -> Iterator[Act]:
        """Look again for the jobs that can be started on a host: it has come, or is not for them any more."""
        jobs = self._beside.desk.jobs
        yield from self._tells_used(host)
        waiting = {job.spec.owner for job in (*jobs.waiting(), *jobs.waiting_for_cores())}
        for user in sorted({line.user for line in self.lines.values() if line.host == host and line.said}):
            yield from [Feed(self.before(user))] if user in waiting else self._reaches(user)

    def reach(self, user: UserName, *, on_cores: bool = False, across: bool = False) -> tuple[HostName, ...]:
        """Return the hosts on which a user's jobs can be started: such on cores, or on several (`across`)."""
        newest = {line.host: line for line in self.lines.values() if line.user == user and line.said}
        out = self.meetings.left_out if across else ()
        return tuple(
            sorted(
                line.host
                for line in newest.values()
                if (line.uses or not on_cores)
                and (line.spans or not across)
                and not self._avoids(line.host)
                and (user, line.host) not in out
            )
        )

    def reach_of_ranks(self, user: UserName) -> tuple[HostName, ...]:
        """Return the hosts on which processes of a user's cells on several hosts can be started."""
        able = {line.host for line in self.lines.values() if line.user == user and line.ranks}
        out = self.meetings.left_out
        return tuple([host for host in self.reach(user) if host in able and (user, host) not in out])

    def line_of_ranks(self, user: UserName, host: HostName) -> int | None:
        """Return the client that starts and ends those on a host."""
        found = [c for c, line in self.lines.items() if line.ranks and (line.user, line.host) == (user, host)]
        return found[-1] if found else None

    def line_of(self, user: UserName, host: HostName | None) -> int | None:
        """Return the client that runs a user's jobs on a host."""
        found = [c for c, line in self.lines.items() if line.said and (line.user, line.host) == (user, host)]
        return found[-1] if found else None

    def _reaches(self, user: UserName) -> Iterator[Act]:
        hosts = self.before(user)
        if self._beside.desk.reach.told.get(user) != hosts:
            yield Feed(hosts)

    # -- what they say --------------------------------------------------------------------------------

    def said(self, client: int, message: wire.FromClient, now: float) -> Iterator[Act]:
        """Take an agent's word about its user's jobs."""
        line = self.lines.get(client)
        match message:
            case _ if line is None:
                return
            case wire.JobsHere() if line.said:
                yield Send(client, wire.Refused("JobsHere is said once on a connection: connect again."))
            case wire.JobsHere(jobs, ranks):
                line.ranks, line.uses, line.since = ranks, message.uses, now
                line.spans = message.spans
                yield from self._here(client, line, jobs)
            case wire.JobSaid():
                yield from self._job_said(client, line, message, now)
            case wire.JobMeets():
                yield from self.meetings.meets(client, line, message, self.line_of_ranks)
            case wire.HostUse():
                if client == self.line_of(line.user, line.host):
                    self._uses.heard(client, line.user, line.host, message, now)
                    yield from self._tells_used(line.host)
            case wire.JobLog():
                return
            case _:
                yield Send(
                    client, wire.Refused(f"{type(message).__name__} is not for an agent's jobs to say.")
                )

    def _here(self, client: int, line: Line, jobs: tuple[tuple[str, int], ...]) -> Iterator[Act]:
        """Compare what an agent has with what it should; what is not its user's it has no business with."""
        line.said = True
        self._lost.pop((line.user, line.host), None)
        own: list[tuple[JobName, int]] = []
        for name, attempt in jobs:
            job = self._beside.desk.jobs.by_name.get(JobName(name))
            if job is not None and job.spec.owner == line.user:
                own.append((job.spec.job, attempt))
            else:
                yield Send(client, wire.StopJob(name, attempt, 0.0, False))
        yield from self._reaches(line.user)
        yield Feed(HostJobs(line.host, tuple(own), line.user))
        yield from self._awaits(line.user)
        if line.uses:
            yield Send(client, wire.UseWanted())

    def _job_said(self, client: int, line: Line, said: wire.JobSaid, now: float) -> Iterator[Act]:
        name = JobName(said.job)
        job = self._beside.desk.jobs.by_name.get(name)
        if job is None:
            if said.what in ENDS:
                yield Feed(JobEnded(name, said.attempt), client)  # Its end was told before: see `answered`.
            return
        own = job.spec.owner == line.user
        if said.what in OFF and own and (job.host not in (None, line.host) or job.failed_at == said.attempt):
            return  # Nothing of it is left there, and it goes on elsewhere.
        if not own or job.host not in (None, line.host):
            yield Send(client, wire.StopJob(said.job, said.attempt, 0.0, False))
            return
        if said.attempt != job.attempt or (job.state == "waiting" and said.what not in ENDS):
            return
        if said.what == "stopped" and said.without:
            self.meetings.leave_out(job, HostName(said.without), said.said, now)
            yield from self._reaches(line.user)
        told = self._note(job, said, now)
        event = self._event(job, said, told, now)
        if event is not None:
            yield Feed(event, client)

    def _note(self, job: JobRecord, said: wire.JobSaid, now: float) -> Told:
        """Keep what was told for those who ask."""
        told = self.told_of.get(job.spec.job)
        if told is None or told.attempt != said.attempt:
            before = told or _kept(job)
            while len(self.told_of) >= TOLD_MAX:
                del self.told_of[next(iter(self.told_of))]
            on_models = before.on_models
            speeds = on_models.setdefault(job.model, {})
            told = Told(
                said.attempt, epoch=before.epoch, loss=before.loss, speeds=speeds, on_models=on_models
            )
            self.told_of[job.spec.job] = told
        told.said = said.said
        if said.epoch is not None:
            if not told.first_at:
                told.first, told.first_at = said.epoch, now
            told.epoch, told.loss, told.at = said.epoch, said.loss, now
            if job.state == "running":
                told.ran_with(job.size)
        return told

    def _event(self, job: JobRecord, said: wire.JobSaid, told: Told, now: float) -> HarvestEvent | None:
        name, attempt = job.spec.job, said.attempt
        match said.what:
            case "runs":
                return JobRuns(name, attempt) if job.state == "starting" else None
            case "stopped":
                return JobStopped(name, attempt, None, told.epoch, told.loss)
            case "done":
                return JobEnded(name, attempt, "done", said.said, told.epoch, told.loss)
            case "failed":
                elsewhere: bool | UnsetType = True if said.elsewhere else UNSET
                return JobEnded(name, attempt, "failed", said.said, told.epoch, told.loss, elsewhere)
        left_s = told.left_s(job.spec.epochs)
        if left_s is None or job.state != "running" or now - told.left_at < LEFT_EVERY_S:
            return None
        told.left_at = now
        speeds = tuple(sorted(told.speeds.items()))
        return JobProgress(name, attempt, left_s * job.spec.type.rate(job.size), speeds)

    def ranks_failed(
        self, client: int, user: UserName, failed: wire.RanksFailed, now: float
    ) -> Iterator[Act]:
        """Take an agent's word that a job cannot be started on its host."""
        yield from self.meetings.failed(self.lines.get(client), user, failed, self._lines, now)
        yield from self._reaches(user)

    def answered(self, client: int, event: HarvestEvent) -> Iterator[Act]:
        """Have an agent forget a job whose end is durable, also one that ended before it could say so."""
        if isinstance(event, JobEnded) and event.job not in self._beside.desk.jobs.by_name:
            yield Send(client, wire.JobGone(event.job))

    # -- what was decided -----------------------------------------------------------------------------

    def told(self, effects: list[HarvestEffect], now: float) -> Iterator[Act]:
        """Say to agents what is to be done."""
        bereft: set[tuple[JobName, HostName]] = set()
        for at, effect in enumerate(effects):
            match effect:
                case StartJob():
                    yield from self._start(effect.spec, effect)
                case ReshapeJob(job):
                    known = self._beside.desk.jobs.by_name.get(job)
                    if known is not None:
                        yield from self._start(known.spec, effect)
                case JobLeaseEnded(job, lease, why) if why != "released" and (job, lease.host) not in bereft:
                    bereft.add((job, lease.host))
                    yield from self._bereft(job, lease.host, effects[at + 1 :])
                case StopJob(job, attempt, host, until, _, saves):
                    within_s = IN_ITS_TIME_S if until is None else max(0.0, until - now)
                    known = self._beside.desk.jobs.by_name.get(job)
                    clients = self._lines(None if known is None else known.spec.owner, host)
                    for client in clients:
                        yield Send(client, wire.StopJob(job, attempt, within_s, saves))
                    yield from self.meetings.stops(effect, self.lines, within_s, hears=bool(clients))
                case JobOver(job, owner=owner):
                    self.told_of.pop(job, None)
                    for client, line in self.lines.items():
                        if line.user == owner:  # Where it failed before, its end is kept until then.
                            yield Send(client, wire.JobGone(job))
                    yield from self._awaits(owner)

    def _bereft(self, name: JobName, host: HostName, later: list[HarvestEffect]) -> Iterator[Act]:
        """End a job where its GPUs were taken from it unasked: the core counts it as gone from there.

        An agent may live there: a host is taken down by hand, or its GPU is refused.
        """
        job = self._beside.desk.jobs.by_name.get(name)
        if job is None or host in job.hosts():
            return
        attempt = min(filter(None, (_begun(name, effect) for effect in later)), default=job.attempt + 1) - 1
        for client in self._lines(job.spec.owner, host):
            yield Send(client, wire.StopJob(name, attempt, 0.0, False))

    def _start(self, spec: JobSpec, start: StartJob | ReshapeJob) -> Iterator[Act]:
        client = self.line_of(spec.owner, start.host)
        line = None if client is None else self.lines[client]
        old = line is not None and (
            (spec.cores is not UNSET and not line.uses) or (bool(start.others) and not line.spans)
        )
        if old:
            yield from self._reaches(spec.owner)  # Its agent is an older one since a moment ago.
            yield Feed(JobStopped(spec.job, start.attempt))
        elif client is not None:
            yield Send(
                client,
                wire.StartJob(
                    spec.job, start.attempt, tuple(start.gpus), spec.command, spec.directory, spec.seal,
                    0 if spec.cores is UNSET else spec.cores.count,
                    0.0 if spec.cores is UNSET else spec.cores.memory_gb,
                    tuple([wire.JobOnHost(other.host, tuple(other.gpus)) for other in start.others]),
                ),
            )  # fmt: skip

    def _lines(self, user: UserName | None, host: HostName | None) -> list[int]:
        """Return the agents of a user on a host."""
        return [client for client, line in self.lines.items() if (line.user, line.host) == (user, host)]

    def submitted(self, user: UserName) -> Iterator[Act]:
        """Have the agents of a user stay: there is a job."""
        yield from self._awaits(user)

    def before(self, user: UserName) -> JobHosts:
        """Return the event that goes before a user's job: where it can be started."""
        hosts = self.reach(user)
        on_cores, across = self.reach(user, on_cores=True), self.reach(user, across=True)
        return JobHosts(
            user, hosts, UNSET if on_cores == hosts else on_cores, UNSET if across == hosts else across
        )

    def before_on_cores(self, user: UserName) -> list[HostUsed]:
        """Return the events that go before a user's job on cores: what is used where it can be started."""
        return list(self._used(self.reach(user, on_cores=True)))

    def _tells_used(self, host: HostName) -> Iterator[Act]:
        """Tell the core what is used on a host, as long as there are jobs on cores."""
        if self._beside.desk.jobs.on_cores:
            yield from map(Feed, self._used((host,)))

    def _used(self, hosts: tuple[HostName, ...]) -> Iterator[HostUsed]:
        """Yield what is used on hosts, where that is news."""
        desk = self._beside.desk
        for host in hosts:
            jobs = [job for job in desk.jobs.on(host) if job.cores is not None]
            size = self._beside.core.size_of(host)
            told = self._uses.used(host, size, jobs, self._speakers(host), desk.processors.used.get(host))
            if told is not None:
                yield told

    def _speakers(self, host: HostName) -> dict[UserName, Speaker]:
        """Return the newest connection of each user's agent on a host: it has one of each."""
        return {
            line.user: Speaker(client, self._offers(line.user, host), line.uses, line.since)
            for client, line in self.lines.items()
            if line.host == host and line.said
        }

    def _awaits(self, user: UserName) -> Iterator[Act]:
        jobs = self._beside.desk.jobs.by_name.values()
        awaits = any(job.spec.owner == user for job in jobs)
        for client, line in self.lines.items():
            if line.user == user and line.said and line.awaits != awaits:
                line.awaits = awaits
                yield Send(client, wire.JobsAwait(awaits))
