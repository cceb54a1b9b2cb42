"""The vocabulary of jobs beside notebooks: what is asked for, what happens, what is to be done.

Law: plain frozen structs. Each start of a job has a larger `attempt` than the one before; what is said of
another attempt than the newest is about processes that are over, or have to be.
"""

from __future__ import annotations

from math import inf, log2
from typing import ClassVar, Literal, NewType, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from replkernel_scheduler.effects import Effect, EndReason
from replkernel_scheduler.elastic.types import JobType
from replkernel_scheduler.events import FREES, LATE, Event, SchedulerEvent
from replkernel_scheduler.gangs.types import GangEvent, GangsEffect
from replkernel_scheduler.types import NOBODY, GpuUuid, HostName, Lease, UserName

JobName = NewType("JobName", str)
"""The id of a job, never used twice."""

EFFICIENCY = 0.9
"""What each doubling of a job's GPUs is thought to keep of twice the speed, before anybody measured it."""

EXPECTED_S = 3600.0
"""A job on cores is thought to take so long if nobody says."""

TIMES_MAX = 1000.0
"""No number of GPUs is thought to be more times as fast as another one."""

JobState: TypeAlias = Literal["waiting", "starting", "running", "stopping"]
"""waiting: it has no GPUs. stopping: it is told to save and stop, whatever comes then."""
JobEnd: TypeAlias = Literal["done", "failed", "stopped"]
StopWhy: TypeAlias = Literal["wanted back", "made room", "asked", "lease over", "stale"]
"""wanted back: cells want its GPUs. made room: another job needs some. asked: its owner. lease over: it no
longer has them. stale: another attempt took its place."""
ChangeWhy: TypeAlias = Literal[
    "idle", "more idle", "wanted back", "made room", "given", "asked", "lease over", "lost", "failed"
]
"""Why a job has other GPUs than before. given: another job made room. lost: its processes, or their agent,
were gone. failed: its program did, too often; it goes on elsewhere."""


class JobChange(msgspec.Struct, frozen=True, gc=False):
    """From `at` on a job has had so many GPUs, or cores if it runs on these alone."""

    at: float
    gpus: int
    why: ChangeWhy


class Cores(msgspec.Struct, frozen=True, gc=False):
    """What a job without GPUs asks of one host; it is thought to take `expected_s` there, if it is alone."""

    count: int
    memory_gb: float
    expected_s: float = EXPECTED_S


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its owner submits it: `type` has the GPU counts that it can run with, and how fast it is then.

    `samples` is how much it has to do; None: nobody knows, and it is thought to have as much left as it has
    done. `gpu_model` and `vram_gb` are what its GPUs must be. `command`, run in `directory`, is what an agent
    starts, `seal` shows it that its user wants that, `epochs` is how many there are: they mean nothing here.
    `cores`: it runs on these alone, and of `type` only that it is always as fast counts. `hosts`: it runs on
    so many at once, with as many GPUs on each.
    """

    job: JobName
    type: JobType
    samples: float | None = None
    name: str = ""
    owner: UserName = NOBODY
    priority: int = 0
    gpu_model: str = ""
    vram_gb: float = 0.0
    command: tuple[str, ...] = ()
    directory: str = ""
    seal: str = ""
    epochs: float | None = None
    cores: Cores | UnsetType = UNSET
    hosts: int | UnsetType = UNSET


def type_on_cores(name: str) -> JobType:
    """Return the type of a job without GPUs: it has one size, and what is left of it is seconds."""
    return JobType(name, 1, {1: 1.0})


def type_of_shapes(name: str, shapes: tuple[int, ...]) -> JobType:
    """Return the type of a job that says only with how many GPUs it can run: its speeds are guessed."""
    return JobType(name, 1, {gpus: gpus / (2 * EFFICIENCY) ** log2(gpus) for gpus in sorted(shapes)})


def type_as_seen(kind: JobType, speeds: tuple[tuple[int, float], ...], gpus: int) -> JobType:
    """Return a type with speeds that were seen, as fast as before with `gpus` GPUs.

    A number that was not seen is thought to be as fast as before beside the nearest that was.
    """
    seen = _sane(kind, speeds)
    if not seen or gpus not in kind.iteration_s:
        return kind
    found: dict[int, float] = {}
    for size in kind.iteration_s:
        near = min(seen, key=lambda each: (abs(each - size), each))
        found[size] = seen[near] * kind.rate(size) / kind.rate(near)
    times = {size: min(max(found[size] / found[gpus], 1 / TIMES_MAX), TIMES_MAX) for size in found}
    same = kind.rate(gpus)
    took = {size: kind.batch * size / (same * times[size]) for size in kind.iteration_s}
    return JobType(kind.name, kind.batch, took)


def type_on_model(
    seen: JobType, here: tuple[tuple[int, float], ...], there: tuple[tuple[int, float], ...]
) -> JobType:
    """Return a type as it is on GPUs of another model: `here` are the speeds that `seen` stands for.

    A number of GPUs that was not seen there is thought to be as fast beside the nearest that was, as here.
    """
    mine, others = _sane(seen, here), _sane(seen, there)
    if not mine or not others:
        return seen
    size, speed = next(iter(mine.items()))
    unit, took = seen.rate(size) / speed, dict[int, float]()
    for size in seen.iteration_s:
        near = min(others, key=lambda each: (abs(each - size), each))
        times = min(max(unit * others[near] / seen.rate(near), 1 / TIMES_MAX), TIMES_MAX)
        took[size] = seen.iteration_s[size] / times
    return JobType(seen.name, seen.batch, took)


def _sane(kind: JobType, speeds: tuple[tuple[int, float], ...]) -> dict[int, float]:
    return {size: speed for size, speed in speeds if size in kind.iteration_s and 0.0 < speed < inf}


class JobSubmitted(SchedulerEvent, frozen=True, tag=True, gc=False):
    """Somebody wants a job run."""

    spec: JobSpec


class JobStopAsked(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The owner does not want it any more: it is saved and ends."""

    job: JobName


class JobHoldAsked(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The owner wants it saved and waiting without GPUs until he says otherwise (`held` False)."""

    job: JobName
    held: bool = True


class JobHosts(SchedulerEvent, frozen=True, tag=True, gc=False):
    """All hosts on which agents can start this owner's jobs; until it is said, any host is thought to.

    `on_cores` and `across` are those where they can start jobs on cores, and on several hosts: not said, all.
    """

    owner: UserName
    hosts: tuple[HostName, ...]
    on_cores: tuple[HostName, ...] | UnsetType = UNSET
    across: tuple[HostName, ...] | UnsetType = UNSET


class JobRuns(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A started or reshaped job trains now; `left` is what it has left of its samples, if it knows."""

    turn: ClassVar[int] = FREES
    job: JobName
    attempt: int
    left: float | None = None


class JobProgress(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A job that trains says what it has left, by what its type says of the GPUs that it has.

    `speeds` are what was seen of it with numbers of GPUs of its model, in a unit of its own: rules compare by
    them.
    """

    job: JobName
    attempt: int
    left: float
    speeds: tuple[tuple[int, float], ...] = ()


class JobStopped(SchedulerEvent, frozen=True, tag=True, gc=False):
    """All processes of a job are over, and nothing of it is on its GPUs; it goes on from `left`, if known.

    `epoch` and `loss` are what its program told last, if it did.
    """

    turn: ClassVar[int] = FREES
    job: JobName
    attempt: int
    left: float | None = None
    epoch: float | None = None
    loss: float | None = None


class JobEnded(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A job has come to its end by itself, and nothing of it is on its GPUs; `said` is how, in a clause.

    `elsewhere`: where it ran it has failed too often, and may be started on other hosts.
    """

    turn: ClassVar[int] = FREES
    job: JobName
    attempt: int
    why: JobEnd = "done"
    said: str = ""
    epoch: float | None = None
    loss: float | None = None
    elsewhere: bool | UnsetType = UNSET


class HostUsed(SchedulerEvent, frozen=True, tag=True, gc=False):
    """On a host notebooks compute on so many cores, and all but jobs on cores use so much memory."""

    host: HostName
    busy: int
    memory_gb: float


class HostJobs(SchedulerEvent, frozen=True, tag=True, gc=False):
    """All that a host's agent has running, said when it comes, and when it comes back.

    `owner`: of this user's jobs alone it speaks (None: of all).
    """

    turn: ClassVar[int] = FREES
    host: HostName
    jobs: tuple[tuple[JobName, int], ...]
    owner: UserName | None = None


class JobsDue(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The driver's timer, armed for `jobs_due()`, has fired."""

    turn: ClassVar[int] = LATE


JobEvent: TypeAlias = (
    JobSubmitted
    | JobStopAsked
    | JobHoldAsked
    | JobHosts
    | JobRuns
    | JobProgress
    | JobStopped
    | JobEnded
    | HostUsed
    | HostJobs
    | JobsDue
)
HarvestEvent: TypeAlias = Event | JobEvent | GangEvent


class JobEffect(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The base of all effects about jobs."""


class JobRefused(JobEffect, frozen=True, tag=True, gc=False):
    """Tell who submitted a job that it is not taken in; `why` is one sentence."""

    job: JobName
    why: str


class JobLeased(JobEffect, frozen=True, tag=True, gc=False):
    """Tell the host that a job has these GPUs now."""

    job: JobName
    lease: Lease


class JobLeaseEnded(JobEffect, frozen=True, tag=True, gc=False):
    """Tell the host that a job does not have them any more."""

    job: JobName
    lease: Lease
    why: EndReason


class OnHost(msgspec.Struct, frozen=True, gc=False):
    """GPUs of one host."""

    host: HostName
    gpus: tuple[GpuUuid, ...]


class StartJob(JobEffect, frozen=True, tag=True, gc=False):
    """Have a job's processes started on these GPUs, from where it was saved last; JobRuns is awaited.

    What runs of an older attempt there is ended first. `others` are the GPUs on its other hosts, if it has
    any: `host` has them used.
    """

    spec: JobSpec
    attempt: int
    host: HostName
    gpus: tuple[GpuUuid, ...]
    others: tuple[OnHost, ...] = ()


class ReshapeJob(JobEffect, frozen=True, tag=True, gc=False):
    """Have a job that trains saved, stopped and started again on these GPUs of its host, which are more.

    `others` is as in StartJob.
    """

    job: JobName
    attempt: int
    host: HostName
    gpus: tuple[GpuUuid, ...]
    others: tuple[OnHost, ...] = ()


class StopJob(JobEffect, frozen=True, tag=True, gc=False):
    """Have a job's processes stopped until `until` (None: in its time); JobStopped is awaited.

    `saves`: what it did is saved first. Without, the processes are ended at once. Of a job on several hosts
    `host` is the first: the others are to hear of it as well, for that one may not.
    """

    job: JobName
    attempt: int
    host: HostName
    until: float | None
    why: StopWhy
    saves: bool = True


class JobOver(JobEffect, frozen=True, tag=True, gc=False):
    """Tell a job's owner that it is over; `gpu_s` is what it had of GPUs in all, `host` where it ran last.

    `core_s` is what it had of cores, where it ran on these alone.
    """

    job: JobName
    why: JobEnd
    gpu_s: float
    host: HostName | None = None
    owner: UserName = NOBODY
    core_s: float | UnsetType = UNSET


JobsEffect: TypeAlias = JobRefused | JobLeased | JobLeaseEnded | StartJob | ReshapeJob | StopJob | JobOver
HarvestEffect: TypeAlias = Effect | JobsEffect | GangsEffect


class JobView(msgspec.Struct, frozen=True, gc=False):
    """A job for people and programs; `ends_at` is when it is thought to be done with the GPUs that it has.

    `ran_on` is the host where it was started last.
    """

    spec: JobSpec
    state: JobState
    attempt: int
    host: HostName | None
    gpus: tuple[GpuUuid, ...]
    held: int
    left: float | None
    ends_at: float | None
    gpu_s: float
    on_hold: bool = False
    ran_on: HostName | None = None


class PastJob(msgspec.Struct, frozen=True, gc=False):
    """A job that is over, since `at`; `said` is how it ended, in a clause, where that was told.

    `attempt` is how often it was started, `epoch` and `loss` are what its program told last.
    """

    spec: JobSpec
    why: JobEnd
    said: str
    gpu_s: float
    ran_on: HostName | None
    at: float
    attempt: int = 0
    epoch: float | None = None
    loss: float | None = None
    core_s: float = 0.0
