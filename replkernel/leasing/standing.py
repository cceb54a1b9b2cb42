"""How leases stand, as the scheduler's REST status tells: asked for, and joined with what the agents tell.

Law: what cannot be asked is told of in a sentence; the joining is pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from replkernel.errors import UNREADABLE, SettingError
from replkernel.leasing.advice import Patience
from replkernel.leasing.asking import Bounds, NoAnswer, ask, shown
from replkernel.leasing.finding import find_scheduler, last_url
from replkernel.protocol.status import (
    BookingStatus,
    ComingStatus,
    GpuStatus,
    HostStatus,
    KernelStatus,
    LeaseStatus,
    SchedulerStatus,
    StatusDocument,
    WaitingStatus,
)

BOUNDS = Bounds(silent_s=3.0, within_s=30.0, bytes_max=64 * 1024 * 1024)
GIB = 2**30
CALM_S = 8.0
"""A scheduler that has gone is told as it was for so long: the next one needs a moment, as a server does."""
WAITING = "waiting for GPUs"
"""The state of a kernel of which a cell waits for GPUs."""


class ToldGpu(msgspec.Struct, frozen=True):
    """A GPU as the scheduler knows it; a lease that is somebody else's has no name here."""

    uuid: str
    lease: str | None = None
    model: str = ""
    memory_gb: float = 0.0
    state: str = ""
    utilisation: float | None = None
    memory_used_gb: float | None = None


class ToldHost(msgspec.Struct, frozen=True):
    """A host as the scheduler knows it."""

    name: str
    state: str = "up"
    gpus: tuple[ToldGpu, ...] = ()
    why: str = ""


class ToldCounts(msgspec.Struct, frozen=True):
    """The whole cluster in counts: how many requests wait now, the ratio as it was a few seconds ago."""

    waiting: int = 0
    ratio: float = 0.0


class Standing(msgspec.Struct, frozen=True):
    """The scheduler's status; fields that it tells besides are skipped."""

    hosts: tuple[ToldHost, ...]
    leases: tuple[LeaseStatus, ...]
    queue: tuple[WaitingStatus, ...]
    counts: tuple[ToldCounts, ...] = ()
    coming: tuple[ComingStatus, ...] = ()
    bookings: tuple[BookingStatus, ...] = ()


UNTOLD = Standing((), (), ())
"""Nothing is known."""


def ask_scheduler(env: Mapping[str, str]) -> tuple[SchedulerStatus | None, Standing]:
    """Return which scheduler there is, or what is wrong with it, and what it tells; None: there is none."""
    url, token = find_scheduler(env)
    return _ask(url, token) if url else (None, UNTOLD)


class Asker:
    """Asks the scheduler time and again; while it refuses the token, less and less often.

    That it has gone is told once it has not come back within CALM_S. One caller at a time.
    """

    def __init__(self, env: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._env, self._clock = env, clock
        self._patience = Patience()
        self._refused_at: tuple[str, str] | None = None
        self._again_at = 0.0
        self._said: tuple[SchedulerStatus | None, Standing] = (None, UNTOLD)
        self._well: tuple[SchedulerStatus | None, Standing] = (None, UNTOLD)
        self._well_at, self._gone_at = float("-inf"), float("inf")

    def ask(self) -> tuple[SchedulerStatus | None, Standing]:
        """Return what `ask_scheduler` does, or what it did when the token was refused, or before it went."""
        where = find_scheduler(self._env)
        if where == self._refused_at and self._clock() < self._again_at:
            return self._said
        if where != self._refused_at:
            self.forget()
        self._said = scheduler, _ = ask_scheduler(self._env)
        if scheduler is not None and scheduler.refused:
            self._refused_at = where
            self._again_at = self._clock() + self._patience.pause_s()
            return self._said
        self.forget()
        return self._calmed(self._clock())

    def _calmed(self, now: float) -> tuple[SchedulerStatus | None, Standing]:
        scheduler, _ = self._said
        if scheduler is not None and not scheduler.trouble:
            self._well, self._well_at, self._gone_at = self._said, now, float("inf")
            return self._said
        self._gone_at = min(self._gone_at, now)
        if now >= self._gone_at + CALM_S:
            return self._said
        if self._well_at >= self._gone_at - CALM_S:
            return self._well
        # Who asks has only begun, as a restarted server has: of the leases it knows nothing yet.
        url = shown(last_url(self._env)) if scheduler is None else scheduler.url
        return (SchedulerStatus(url), UNTOLD) if url else self._said

    def forget(self) -> None:
        """Ask anew: somebody else wants to know."""
        self._refused_at = None
        self._patience.forget()


def _ask(url: str, token: str) -> tuple[SchedulerStatus, Standing]:
    refused = False
    try:
        told = msgspec.json.decode(ask(url, token, "/api/v1/status", BOUNDS), type=Standing)
    except SettingError as error:
        why = str(error)
    except NoAnswer as error:
        why, refused = error.why, error.code in (401, 403)
    except UNREADABLE:
        why = "its answer is not understood; is it of this version?"
    else:
        counts = told.counts[-1] if told.counts else None
        waiting, ratio = (None, None) if counts is None else (counts.waiting, counts.ratio)
        if waiting is not None:
            waiting = max(waiting, len(told.queue))  # An older scheduler counts now and then only.
        return SchedulerStatus(url, waiting=waiting, subscription_ratio=ratio), told
    return SchedulerStatus(shown(url), why, refused=refused), UNTOLD


def join(document: StatusDocument, scheduler: SchedulerStatus | None, told: Standing) -> StatusDocument:
    """Return the agents' document with what the scheduler tells: leases, who waits, other hosts."""
    known = {host.name: host for host in told.hosts}
    here = [_with_leases(host, known.pop(host.name, None)) for host in document.hosts]
    there = [
        HostStatus(host.name, host.state, tuple(_gpu(gpu) for gpu in host.gpus), host.why)
        for host in known.values()
    ]
    return msgspec.structs.replace(
        document,
        kernels=_waiting_kernels(document, told),
        hosts=tuple(sorted([*_marked(here, scheduler, told), *there], key=lambda host: host.name)),
        leases=told.leases,
        waiting=told.queue,
        coming=told.coming,
        bookings=told.bookings,
        scheduler=scheduler,
    )


def _waiting_kernels(document: StatusDocument, told: Standing) -> tuple[KernelStatus, ...]:
    """Return the kernels; one of which a cell waits for GPUs is not idle, though no replica runs."""
    waiting = {wish.kernel_id for wish in told.queue}
    return tuple(
        msgspec.structs.replace(kernel, state=WAITING)
        if kernel.state == "idle" and kernel.kernel_id in waiting
        else kernel
        for kernel in document.kernels
    )


def _marked(hosts: list[HostStatus], scheduler: SchedulerStatus | None, told: Standing) -> list[HostStatus]:
    """Return the hosts with those processes marked whose kernel has no lease on the GPU that they use."""
    if scheduler is None or scheduler.trouble:
        return hosts
    leased = {(lease.kernel_id, gpu) for lease in told.leases for gpu in lease.gpus}
    replace = msgspec.structs.replace

    def marked(gpu: GpuStatus) -> GpuStatus:
        processes = (
            replace(each, unleased=(each.kernel_id, gpu.uuid) not in leased) for each in gpu.processes
        )
        return replace(gpu, processes=tuple(processes)) if gpu.processes else gpu

    return [replace(host, gpus=tuple(marked(gpu) for gpu in host.gpus)) for host in hosts]


def _with_leases(host: HostStatus, told: ToldHost | None) -> HostStatus:
    """Return an agent's host with the states of its GPUs; the agent knows best what they do.

    That it is being drained is the scheduler's to know.

    GPUs that it does not name are another agent's, as where an administrator's offers those of a Hub's hosts.
    """
    by_uuid = {gpu.uuid: gpu for gpu in told.gpus} if told is not None else {}
    gpus = [
        msgspec.structs.replace(gpu, state=found.state, lease=found.lease or "")
        if (found := by_uuid.get(gpu.uuid)) is not None
        else gpu
        for gpu in host.gpus
    ]
    named = {gpu.uuid for gpu in host.gpus}
    others = [_gpu(gpu) for uuid, gpu in by_uuid.items() if uuid not in named]
    drained = {"state": told.state, "why": told.why} if told is not None and told.state == "draining" else {}
    return msgspec.structs.replace(host, gpus=(*gpus, *others), **drained)


def _gpu(told: ToldGpu) -> GpuStatus:
    return GpuStatus(
        told.uuid,
        told.model,
        round(told.memory_gb * GIB),
        utilisation=told.utilisation,
        memory_used_bytes=None if told.memory_used_gb is None else round(told.memory_used_gb * GIB),
        state=told.state,
        lease=told.lease or "",
    )
