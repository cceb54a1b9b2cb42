"""What the desk of jobs knows of who leases, how often it looks, and what may be a job at all.

Law: it decides nothing about GPUs.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec import UNSET

from replkernel_scheduler.events import Event, GpusWanted
from replkernel_scheduler.gangs.desk import HOSTS_MAX
from replkernel_scheduler.harvest.jobs import Jobs
from replkernel_scheduler.harvest.types import JobSpec
from replkernel_scheduler.types import HostName, LeaseRequest, Room, Size, UserName

JOBS_MAX = 10_000
HOSTS_AT_ONCE_MAX = 1_000_000
SHAPES_MAX = 64
STARTS_WITHIN, STAYS_WITHIN = 0.9, 0.95
"""Of a host's memory: no job on cores starts beyond the one, and beyond the other one of them leaves."""
CORES_MAX = 1024
MEMORY_GB_MAX = 65_536.0


class Pace(NamedTuple):
    """How often those that wait are looked at, and at how many at once that then get nothing.

    `hosts`: the queues of jobs on cores that are served at once have so many together, or a few more.
    """

    apart_s: float = 0.0
    jobs: int = JOBS_MAX
    hosts: int = HOSTS_AT_ONCE_MAX


LIVE = Pace(1.0, 256, 512)
"""That of a service: each look is an event in its journal."""


class Leasing(Protocol):
    """What the desk knows of who leases."""

    def feed(self, event: Event, now: float) -> None:
        """Hand an event to the core; what follows has happened when this returns."""
        ...

    def room(self, host: HostName, gpu_model: str, vram_gb: float) -> Room:
        """Return what is idle on a host."""
        ...

    def offers(self, host: HostName, gpu_model: str, vram_gb: float) -> bool:
        """Say whether a host has such GPUs, idle or not, and nobody who waits has a claim on any."""
        ...

    def models(self, wanted: GpusWanted) -> set[str]:
        """Return of which models a host has all that such a job needs, or would get it back."""
        ...

    def hosts(self) -> list[HostName]:
        """Return the hosts that are up."""
        ...

    def known(self) -> list[HostName]:
        """Return the hosts that are up, or may come back into sight."""
        ...

    def gpus_of(self, host: HostName, wish: LeaseRequest) -> int:
        """Return the most GPUs that a host could lease to such a request, with nothing else on it."""
        ...

    def models_of(self, host: HostName, wish: LeaseRequest) -> dict[str, int]:
        """Return of which models a host could lease to a request, and how many with nothing else on it."""
        ...

    def why_never(self, wish: LeaseRequest) -> str:
        """Say why no host that is up, or can be had, could serve a request; "" if one could."""
        ...

    def size_of(self, host: HostName) -> Size | None:
        """Return what a host has; None: it is gone, or is to be emptied."""
        ...

    def is_there(self, host: HostName) -> bool:
        """Say whether a host is known, however it stands."""
        ...

    def gpu_quota(self, user: UserName) -> int | None:
        """Return how many GPUs a user may have at once; None: as many as there are."""
        ...

    def keeps(self) -> bool:
        """Say whether what lingers is never asked back."""
        ...


class Place(NamedTuple):
    """The GPUs of one model on a host: a job has all of its own at one place."""

    host: HostName
    model: str


def problem(spec: JobSpec, jobs: Jobs, *, keeps: bool) -> str | None:
    """Say why a job is not taken in; `keeps`: kernels keep what lingers."""
    shapes = spec.type.iteration_s
    if spec.job in jobs.by_name:
        return f"Job {spec.job} is there already; give each job an id of its own."
    if len(jobs.by_name) >= JOBS_MAX:
        return f"{JOBS_MAX} jobs are there already; stop some, or wait until some are done."
    if spec.cores is not UNSET:
        if 1 <= spec.cores.count <= CORES_MAX and 0.0 < spec.cores.memory_gb <= MEMORY_GB_MAX:
            return None
        return (
            f"A job without GPUs wants 1 to {CORES_MAX} cores, and {MEMORY_GB_MAX:g} GiB of memory at most."
        )
    if keeps:
        return "Kernels keep their GPUs under this scheduler's policies, so none is left for jobs."
    if not shapes or min(shapes) < 1 or max(shapes) > SHAPES_MAX or min(shapes.values()) <= 0:
        return f"A job says with how many GPUs it can run, each a number from 1 to {SHAPES_MAX}."
    if spec.hosts is not UNSET and not 2 <= spec.hosts <= HOSTS_MAX:
        return f"A job on several hosts wants 2 to {HOSTS_MAX} of them."
    if spec.hosts is not UNSET and any(gpus % spec.hosts for gpus in shapes):
        return f"A job on {spec.hosts} hosts has as many GPUs on each: name multiples of {spec.hosts}."
    return None
