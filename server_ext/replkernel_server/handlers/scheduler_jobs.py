"""The scheduler's REST resources for jobs beside notebooks.

Law: everybody submits, sees, stops and reads his own jobs alone; an administrator sees and stops all, and
reads the log of none but his own.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import UNSET
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.types import (
    EXPECTED_S,
    ChangeWhy,
    Cores,
    JobHoldAsked,
    JobName,
    JobRefused,
    JobSpec,
    JobStopAsked,
    JobSubmitted,
    PastJob,
    type_of_shapes,
    type_on_cores,
)
from replkernel_scheduler.types import HostName, UserName

from replkernel.jobs.answers import EndsIn, JobAnswer, JobsAnswer, LogAnswer, Reshape
from replkernel.leasing.models import model_name
from replkernel_server.errors import BadRequest, NotKnown
from replkernel_server.handlers.scheduler_base import Operation, Query, SchedulerHandler
from replkernel_server.scheduling import access
from replkernel_server.scheduling.desk_words import JobCame
from replkernel_server.scheduling.documents import (
    NUMBER_MAX,
    Empty,
    FenceNumber,
    JobBody,
    Why,
    check_id,
)
from replkernel_server.scheduling.identity import NotYours, TooMuch
from replkernel_server.scheduling.job_desk import JobDesk, Told
from replkernel_server.scheduling.settings import JOBS

JOBS_OF_USER_MAX = 100
COMMAND_CHARS_MAX = 64 * 1024
HOUR_S = 3600.0


def check_job(body: JobBody) -> None:
    """Raise BadRequest where something of a job does not go together."""
    if bool(body.gpus) == bool(body.cpus):
        raise BadRequest("A job wants GPUs (`gpus`) or cores alone (`cpus`): name one of these.")
    if body.gpus and (body.memory_gb or body.expected_s != EXPECTED_S):
        raise BadRequest("`memory_gb` and `expected_s` go with `cpus`, for jobs that need no GPU.")
    if body.cpus and not body.memory_gb:
        raise BadRequest("A job on cores needs memory: name more than 0 GiB (`memory_gb`).")
    if body.cpus and (body.gpu_model or body.vram_gb):
        raise BadRequest("`gpu_model` and `vram_gb` go with `gpus`: a job on cores has no GPU.")
    if body.cpus and body.hosts > 1:
        raise BadRequest("`hosts` goes with `gpus`: a job on cores runs on one host.")


class JobsBase(SchedulerHandler):
    """What handlers of jobs share."""

    @property
    def desk(self) -> JobDesk:
        """Return the desk of jobs; raise NotKnown where there is none."""
        desk = self.channel.desk.jobs
        if desk is None:
            raise NotKnown("No jobs run here.")
        return desk

    def own_job(self, text: str) -> JobRecord | PastJob:
        """Return the job that an address names; raise NotKnown, also for one that is another user's."""
        name = JobName(check_id(text, "job's name"))
        beside = self.driver.beside.desk
        found: JobRecord | PastJob | None = beside.jobs.by_name.get(name)
        found = found or next((past for past in reversed(beside.past) if past.spec.job == name), None)
        if found is None or not access.may_see(self.identity, found.spec.owner):
            raise NotKnown(f"No job {name} is known: `replkernel job list` shows yours.")
        return found

    def to_touch(self, text: str) -> JobRecord | None:
        """Return the job to be changed, None if it is over; raise NotYours."""
        found = self.own_job(text)
        self.for_owner(found.spec.owner, f"Job {found.spec.job}")
        return found if isinstance(found, JobRecord) else None

    def job_answer(self, job: JobRecord | PastJob) -> JobAnswer:
        """Write a job."""
        answer = self._any_answer(job)
        cores, hosts = job.spec.cores, job.spec.hosts
        if hosts is not UNSET:
            there = [] if isinstance(job, PastJob) else job.hosts()
            return msgspec.structs.replace(answer, hosts=hosts, on_hosts=there)
        if cores is UNSET:
            return answer
        core_s = job.core_s if isinstance(job, PastJob) else job.core_s_at(self.driver.clock.now())
        hours = round(core_s / HOUR_S, 6)
        return msgspec.structs.replace(
            answer, shapes=[], ends_in=[], cpus=cores.count, memory_gb=cores.memory_gb, cpu_hours=hours
        )

    def _any_answer(self, job: JobRecord | PastJob) -> JobAnswer:
        spec = job.spec
        shapes, command = sorted(spec.type.iteration_s), list(spec.command)
        if isinstance(job, PastJob):
            hours = round(job.gpu_s / HOUR_S, 6)
            return JobAnswer(
                spec.job, spec.owner, job.why, job.ran_on, (), shapes, command, spec.directory, job.attempt,
                job.epoch, spec.epochs, job.loss, None, hours, job.said,
            )  # fmt: skip
        why = WHY if job.cores is None else WHY | WHY_ON_CORES
        now, told = self.driver.clock.now(), self.desk.told_of.get(spec.job)
        left_s = None if told is None or job.state != "running" else told.left_s(spec.epochs)
        if left_s is not None and told is not None:
            left_s = max(0.0, left_s - (now - told.at))
        gpu_s = job.gpu_s + job.held() * (now - job.counted_at)
        gpus = job.gpus if job.state != "waiting" else ()
        return JobAnswer(
            spec.job, spec.owner, _state(job), job.host or job.ran_on, tuple(gpus), shapes, command,
            spec.directory, job.attempt, job.epoch if told is None else told.epoch, spec.epochs,
            job.loss if told is None else told.loss, left_s, round(gpu_s / HOUR_S, 6), self._said(job),
            [] if told is None else _ends_in(told, job, now),
            [Reshape(round(now - each.at, 1), each.gpus, why[each.why]) for each in job.changes],
        )  # fmt: skip

    def _said(self, job: JobRecord) -> str:
        told = self.desk.told_of.get(job.spec.job)
        if gone := why_gone(job, self.desk.away_until(job), self.driver.clock.now()):
            return gone
        if job.state == "waiting" and not job.on_hold:
            reach = self.desk.reach(job.spec.owner, on_cores=job.cores is not None, across=job.span > 1)
            out = self.desk.meetings.why_left_out(job.spec.owner)
            if out and len(reach) < job.span:
                return _clause(out)
            if not reach:
                return "no agent of its user that can run it is connected"
            if len(reach) < job.span:
                there = ", ".join(reach)
                return f"it wants {job.span} hosts, and agents of its user that can run it are on {there}"
            if job.spec.job in self.driver.beside.desk.jobs.promised():
                return "another job makes room for it"
            what = "GPUs that nobody needs" if job.cores is None else "cores and memory"
            what += f" on {job.span} hosts" if job.span > 1 else ""
            why = _clause(job.refused) or f"it waits for {what}"
            if job.failed_at and job.failed_at == job.attempt:
                where = " and ".join(job.failed[-1])
                return f"it failed on {where} ({job.failure}), and goes on elsewhere: {why}"
            return why
        if job.state == "stopping":
            if job.ending or job.on_hold:
                return "it is saved and stopped"
            if job.cores is not None:
                return "its host needs what it has"
            return "notebooks want its GPUs" if job.leaves is None else "another job needs some of its GPUs"
        return "" if told is None or told.attempt != job.attempt else told.said


WHY: dict[ChangeWhy, str] = {
    "idle": "GPUs were idle",
    "more idle": "more GPUs became idle",
    "wanted back": "a notebook wanted its GPUs",
    "made room": "another job needed some",
    "given": "another job made room",
    "asked": "its owner stopped or held it",
    "lease over": "its GPUs or its host failed",
    "lost": "its program or its agent was gone",
    "failed": "its program failed again and again: it goes on on other hosts",
}

WHY_ON_CORES: dict[ChangeWhy, str] = {
    "idle": "there was room",
    "wanted back": "notebooks needed memory, or its host was to be emptied",
    "lease over": "its host failed",
}


def _ends_in(told: Told, job: JobRecord, now: float) -> list[EndsIn]:
    done = told.done_since(len(job.gpus), now) if job.state == "running" else 0.0
    found = told.ends_in(job.spec.type, job.spec.epochs, done)
    return [EndsIn(gpus, round(seconds, 1)) for gpus, seconds in found.items()]


def why_gone(job: JobRecord, away_until: float | None, now: float) -> str:
    """Say what becomes of a job whose host, or the agent there, is away; nothing where it is there."""
    if job.state == "waiting":
        return ""
    then = "it goes on elsewhere from its checkpoint"
    if job.ending is not None or job.on_hold:
        then = f"it is {'held' if job.ending is None else 'stopped'} with its last checkpoint"
    if job.gone_at is not None:
        left_s = max(0.0, job.gone_at - now)
        return (
            f"host {job.host} is lost: once its other hosts have ended it, in {left_s:.0f} s at most, {then}"
        )
    if away_until is None:
        return ""
    left_s = max(0.0, away_until - now)
    return f"its agent on host {job.host} is away: if that is not back in {left_s:.0f} s, {then}"


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].removesuffix(".")


def _state(job: JobRecord) -> str:
    return "held" if job.on_hold and job.state == "waiting" else job.state


class JobsHandler(JobsBase):
    """/api/v1/jobs."""

    operations: ClassVar = {
        "get": Operation("One's own jobs (an admin: all), also the last that are over.", {200: JobsAnswer}),
        "post": Operation(
            "Submit a job: it runs on GPUs that nobody needs, and leaves them when a cell wants them; or, "
            "without GPUs, on cores and memory beside notebooks.",
            {201: JobAnswer, 409: Why, 429: Why},
            takes=JobBody,
        ),
    }

    async def get(self) -> None:
        """Answer with jobs."""
        await self.driver.settled()
        beside = self.driver.beside.desk
        known: list[JobRecord | PastJob] = [*beside.jobs.by_name.values(), *reversed(beside.past)]
        jobs = [self.job_answer(job) for job in known if access.may_see(self.identity, job.spec.owner)]
        self.answer(200, JobsAnswer(jobs))

    async def post(self) -> None:
        """Take a job in."""
        self.unless(access.why_not_lease(self.identity))
        body, user = self.body(JobBody), self.identity.user
        if not self.channel.takes_jobs:
            self.answer(409, Why(f"This scheduler takes no jobs: its administrator has set {JOBS}=off."))
            return
        if not body.directory.startswith("/") or sum(map(len, body.command)) > COMMAND_CHARS_MAX:
            raise BadRequest("A job has an absolute directory, and a command of 65536 characters at most.")
        check_job(body)
        jobs = self.driver.beside.desk.jobs.by_name.values()
        if sum(job.spec.owner == user for job in jobs) >= JOBS_OF_USER_MAX:
            raise TooMuch(f"{user} has {JOBS_OF_USER_MAX} jobs, as many as one may: stop some.")
        if any(past.spec.job == body.job for past in self.driver.beside.desk.past):
            self.answer(409, Why(f"Job {body.job} was there already: name this one otherwise."))
            return
        effects = await self._submit(body, user)
        refused = [effect.why for effect in effects if isinstance(effect, JobRefused)]
        if refused:
            self.answer(409, Why(refused[0]))
            return
        self.answer(201, self.job_answer(self.own_job(body.job)))

    async def _submit(self, body: JobBody, user: UserName) -> list[object]:
        on_cores = type_on_cores(body.job)
        spec = JobSpec(
            job=JobName(body.job),
            type=type_of_shapes(body.job, tuple(sorted(set(body.gpus)))) if body.gpus else on_cores,
            owner=user,
            gpu_model=model_name(body.gpu_model),
            vram_gb=body.vram_gb,
            command=tuple(body.command),
            directory=body.directory,
            seal=body.seal,
            epochs=body.epochs,
            cores=Cores(body.cpus, body.memory_gb, body.expected_s) if body.cpus else UNSET,
            hosts=body.hosts if body.hosts > 1 else UNSET,
        )
        await self.driver.apply(self.desk.before(user))
        for used in self.desk.before_on_cores(user) if body.cpus else ():
            await self.driver.apply(used)
        effects = await self.driver.apply(JobSubmitted(spec))
        await self.channel.happened(JobCame(user))
        return [*effects]


class JobHandler(JobsBase):
    """/api/v1/jobs/JOB."""

    operations: ClassVar = {
        "get": Operation("How a job stands.", {200: JobAnswer, 404: Why}),
        "delete": Operation("Have a job saved and ended.", {200: Empty, 404: Why}),
    }

    async def get(self, job: str) -> None:
        """Answer with the job."""
        found = self.own_job(job)
        await self.driver.settled()
        self.answer(200, self.job_answer(found))

    async def delete(self, job: str) -> None:
        """End it; one that is over stays so."""
        found = self.to_touch(job)
        if found is not None:
            await self.driver.apply(JobStopAsked(found.spec.job))
        self.answer(200, Empty())


class HoldHandler(JobsBase):
    """/api/v1/jobs/JOB/hold."""

    operations: ClassVar = {
        "post": Operation("Have a job saved, and wait without GPUs.", {200: Empty, 404: Why, 409: Why}),
        "delete": Operation("Let a job that is on hold go on.", {200: Empty, 404: Why, 409: Why}),
    }

    async def post(self, job: str) -> None:
        """Put it on hold."""
        await self._hold(job, held=True)

    async def delete(self, job: str) -> None:
        """Let it go on."""
        await self._hold(job, held=False)

    async def _hold(self, job: str, *, held: bool) -> None:
        found = self.to_touch(job)
        if found is None or found.ending is not None:
            self.answer(409, Why(f"Job {job} is over, or ends: submit it again."))
            return
        await self.driver.apply(JobHoldAsked(found.spec.job, held))
        self.answer(200, Empty())


class LogHandler(JobsBase):
    """/api/v1/jobs/JOB/log."""

    operations: ClassVar = {
        "get": Operation(
            "What a job has written on the host where it ran last, 64 KiB at most.",
            {200: LogAnswer, 404: Why, 409: Why},
            query=(Query("at", FenceNumber, "The byte to begin with; 0: the oldest that is kept."),),
        )
    }

    async def get(self, job: str) -> None:
        """Answer with the log from `at` on."""
        found = self.own_job(job)
        if found.spec.owner != self.identity.user:
            raise NotYours(f"Job {found.spec.job} is another user's: its log is his alone.")
        text = self.get_query_argument("at", "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) <= NUMBER_MAX):
            raise BadRequest("`at` is a number of bytes.")
        over = isinstance(found, PastJob)
        host: HostName | None = found.ran_on
        client = self.desk.line_of(found.spec.owner, host)
        if host is None:
            self.answer(200, LogAnswer("", 0, 0, over))
            return
        said = None if client is None else await self.channel.log_of(client, found.spec.job, int(text))
        if said is None:
            why = f"The agent of host {host}, which has the log, does not answer: try again later."
            self.answer(409, Why(why))
            return
        words = said.data.decode(errors="replace")
        self.answer(200, LogAnswer(words, said.at, said.at + len(said.data), over))
