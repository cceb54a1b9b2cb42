"""A core with jobs beside its kernels, its clock, and agents that run what they are told to.

Law: after every event the laws are checked, also that of the agents: no GPU has two at once that compute.
"""

from __future__ import annotations

import random
from typing import TypeVar

import msgspec
from msgspec import UNSET
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import LeaseEnded, LeaseGranted
from replkernel_scheduler.events import HostUp, LeaseAsked, LeaseLingered, LeaseReleased, TimeReached
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.image import HarvestImage
from replkernel_scheduler.harvest.leasing import Pace
from replkernel_scheduler.harvest.types import (
    HarvestEffect,
    HarvestEvent,
    HostJobs,
    JobEnded,
    JobLeaseEnded,
    JobName,
    JobRuns,
    JobsDue,
    JobSpec,
    JobStopped,
    JobSubmitted,
    JobView,
    ReshapeJob,
    StartJob,
    StopJob,
    type_of_shapes,
)
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    Lease,
    LeaseRequest,
    RequestId,
    UserName,
)

Kind = TypeVar("Kind")


class Process(msgspec.Struct):
    """What agents run of a job, on its first host and the others: `told` to stop, or not."""

    attempt: int
    host: HostName
    gpus: tuple[GpuUuid, ...]
    shapes: tuple[int, ...]
    told: bool = False


class Beside:
    """One core, told of hosts, cells and jobs by short names; agents keep what was started."""

    def __init__(self, seed: int = 0, pace: Pace | None = None) -> None:
        self.pace = pace
        self.dice = random.Random(seed)
        self.core = self._made(self.dice)
        self.now = 0.0
        self.cells: dict[str, Lease] = {}
        self.granted_at: dict[str, float] = {}
        self.processes: dict[JobName, Process] = {}
        self.left: list[Process] = []
        """What no newer attempt on the same first host has replaced."""
        self.away: set[str] = set()
        """Hosts whose agents hear nothing: what runs there goes on."""
        self.journal: list[tuple[HarvestEvent, float, list[HarvestEffect]]] = []

    def _made(self, dice: random.Random) -> HarvestCore:
        return HarvestCore(SchedulerCore(dice, notebook(), CoreSettings(), Fence(0)), self.pace)

    def feed(self, event: HarvestEvent, *, after_s: float = 0.0) -> list[HarvestEffect]:
        self.until(self.now + after_s)
        return self._hand_in(event)

    def until(self, at: float) -> None:
        """Let the time pass: what is due is handed in as a driver does, jobs last."""
        while True:
            timer, jobs = self.core.deadline(), self.core.jobs_due()
            due = min([each for each in (timer, jobs) if each is not None], default=None)
            if due is None or due > at:
                break
            self.now = max(self.now, due)
            self._hand_in(TimeReached() if due == timer else JobsDue())
        self.now = at

    def restart(self) -> None:
        """Go on from an image, as a service that was killed."""
        image = msgspec.msgpack.encode(self.core.image())
        dice = random.Random(0)
        dice.setstate(self.dice.getstate())
        self.dice, self.core = dice, self._made(dice)
        self.core.restore(msgspec.msgpack.decode(image, type=HarvestImage))
        self.core.check_invariants()
        assert msgspec.msgpack.encode(self.core.image()) == image

    # -- short names --------------------------------------------------------------------------------

    def host(self, name: str, gpus: int) -> list[HarvestEffect]:
        offered = tuple(Gpu(GpuUuid(f"GPU-{name}-{i}")) for i in range(gpus))
        return self.feed(HostUp(HostName(name), offered))

    def submit(
        self, job: str, *shapes: int, samples: float | None = None, priority: int = 0, hosts: int = 1
    ) -> None:
        spec = JobSpec(
            job=JobName(job), type=type_of_shapes(job, shapes), samples=samples, priority=priority,
            owner=UserName("ann"), hosts=UNSET if hosts == 1 else hosts,
        )  # fmt: skip
        self.feed(JobSubmitted(spec))
        self.until(self.now)

    def cell(self, name: str, gpus: int, hosts: str = "", kernel: str = "") -> list[HarvestEffect]:
        wish = LeaseRequest(
            RequestId(name),
            KernelId(kernel or f"kernel-{name}"),
            gpus,
            1e5,
            tuple(HostName(host) for host in hosts.split()),
        )
        return self.feed(LeaseAsked(wish))

    def over(self, name: str, *, lingers: bool = False) -> None:
        lease = self.cells.pop(name)
        how = LeaseLingered if lingers else LeaseReleased
        self.feed(how(lease.lease, lease.fence))
        self.until(self.now)

    def runs(self, job: str, left: float | None = None) -> None:
        self.feed(JobRuns(JobName(job), self.processes[JobName(job)].attempt, left))

    def stopped(self, job: str, left: float | None = None) -> list[HarvestEffect]:
        process = self.processes.pop(JobName(job))
        effects = self.feed(JobStopped(JobName(job), process.attempt, left))
        self.until(self.now)
        return effects

    def ended(self, job: str) -> list[HarvestEffect]:
        return self.feed(JobEnded(JobName(job), self.processes.pop(JobName(job)).attempt))

    def job(self, name: str) -> JobView:
        return next(job for job in self.core.jobs() if job.spec.job == name)

    # -- what follows -------------------------------------------------------------------------------

    def _hand_in(self, event: HarvestEvent) -> list[HarvestEffect]:
        effects = self.core.handle(event, self.now)
        if isinstance(event, HostJobs):
            for name in set(self.processes) - {name for name, _ in event.jobs}:
                self._is_off(self.processes[name], event.host)  # Or given up there.
        self.journal.append((event, self.now, effects))
        for effect in effects:
            self._see(effect)
        self.core.check_invariants()
        self._check_agents()
        return effects

    def _see(self, effect: HarvestEffect) -> None:
        match effect:
            case LeaseGranted():
                name = str(effect.lease.request)
                self.cells[name] = effect.lease
                self.granted_at.setdefault(name, self.now)
            case LeaseEnded():
                self.cells.pop(str(effect.lease.request), None)
            case StartJob():
                shapes = tuple(effect.spec.type.iteration_s) if effect.spec.cores is UNSET else (0,)
                before = self.processes.get(effect.spec.job)
                if before is not None and before.host != effect.host:
                    self.left.append(before)
                assert len(all_gpus(effect)) in shapes
                self.processes[effect.spec.job] = Process(
                    effect.attempt, effect.host, all_gpus(effect), shapes
                )
            case ReshapeJob():
                before = self.processes[effect.job]
                assert effect.host == before.host
                gpus = all_gpus(effect)
                assert len(gpus) > len(before.gpus) and len(gpus) in before.shapes
                self.processes[effect.job] = Process(effect.attempt, effect.host, gpus, before.shapes)
            case StopJob(saves=True):
                self.processes[effect.job].told = True
            case StopJob() | JobLeaseEnded(why="not given back" | "expired"):
                self._ends(effect.job)
            case JobLeaseEnded(why="host down" | "gpu gone"):
                if (process := self.processes.get(effect.job)) is not None:
                    process.gpus = tuple([gpu for gpu in process.gpus if gpu not in effect.lease.gpus])
                    self._forget(effect.job)

    def _ends(self, job: JobName) -> None:
        """End it on each host whose agent hears: by then it was told, and had its time."""
        process = self.processes.get(job)
        for host in {host_of(gpu) for gpu in process.gpus} - self.away if process is not None else ():
            self._is_off(self.processes[job], HostName(host))
        self._forget(job)

    def _is_off(self, process: Process, host: HostName) -> None:
        process.gpus = tuple([gpu for gpu in process.gpus if host_of(gpu) != host])

    def _forget(self, job: JobName) -> None:
        if job in self.processes and not self.processes[job].gpus:
            del self.processes[job]

    def _check_agents(self) -> None:
        computing = [uuid for lease in self.cells.values() for uuid in lease.gpus]
        for process in (*self.processes.values(), *self.left):
            computing += process.gpus
        assert len(computing) == len(set(computing)), "two compute on one GPU"


def all_gpus(effect: StartJob | ReshapeJob) -> tuple[GpuUuid, ...]:
    """Return the GPUs of all hosts."""
    return (*effect.gpus, *(gpu for other in effect.others for gpu in other.gpus))


def host_of(gpu: GpuUuid) -> str:
    """Return the host of a GPU that this has offered."""
    return gpu.removeprefix("GPU-").rpartition("-")[0]


def of(kind: type[Kind], effects: list[HarvestEffect]) -> list[Kind]:
    return [effect for effect in effects if isinstance(effect, kind)]
