"""The scheduler's words: ids and the frozen records that events, effects and the view are made of.

Law: times are the driver's monotonic seconds and never leave this process; a fence is larger than every
fence given before it. Sizes are in GiB, processors in cores.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, NewType, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

HostName = NewType("HostName", str)
"""The name of a host, which is the name of the agent that serves it."""

GpuUuid = NewType("GpuUuid", str)
"""A GPU's UUID as its driver reports it; no two hosts may report the same one."""

KernelId = NewType("KernelId", str)
"""The id of a logical kernel."""

UserName = NewType("UserName", str)
"""Whose quota a request counts against; the driver says who it is, never the request's sender."""

RequestId = NewType("RequestId", str)
"""What the asker calls its request; asking again with the same id is the same request."""

LeaseId = NewType("LeaseId", str)
"""The id of a lease, given by the scheduler and never used twice."""

MigrationId = NewType("MigrationId", str)
"""The id of one attempt to move one replica, given by the scheduler and never used twice."""

ReservationId = NewType("ReservationId", str)
"""The id of a host that is being provisioned, given by the scheduler and never used twice."""

BookingId = NewType("BookingId", str)
"""What a booking of GPUs for later is called."""

Fence = NewType("Fence", int)
"""A number that only grows: of two leases on one GPU the newer has the larger fence."""

NO_FENCE = Fence(0)
NOBODY = UserName("")

LeasePhase: TypeAlias = Literal["active", "bound", "lingering", "reclaiming", "reserved"]
"""active: a cell runs. bound: kept for a replica on its way. lingering: state lies there, nobody runs.
reclaiming: somebody else waits for it. reserved: held for a kernel's whole life (a baseline)."""

HostState: TypeAlias = Literal["up", "down", "draining", "gone"]
"""A host being provisioned is a reservation; one that is gone is forgotten before the event is over."""

Shape: TypeAlias = tuple[int | float | str, ...]
"""What somebody asks for: GPUs first, then the rest; a share has its own numbers behind that."""


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One GPU that a host offers; `memory_gb` 0 says that nobody measured it."""

    uuid: GpuUuid
    model: str = ""
    memory_gb: float = 0.0


class Prices(msgspec.Struct, frozen=True, gc=False):
    """What hosts cost whoever provides them, and what users pay of it (spec 1.10).

    `gpu_hour` has the price of one GPU of a model for an hour ("": of any other model), `host_hour` what a
    host costs beside its GPUs. Users pay `factor` times that for the GPUs that their cells hold, and
    `factor` times the share `standby` of a host for each replica that stands by.
    """

    gpu_hour: tuple[tuple[str, float], ...] = ()
    host_hour: float = 0.0
    factor: float = 1.15
    standby: float = 0.125
    currency: str = ""


class Price(msgspec.Struct, frozen=True, gc=False):
    """What a lease costs its user an hour."""

    hour: float
    currency: str = ""


class HostShape(msgspec.Struct, frozen=True, gc=False):
    """What a host that is to be provisioned will offer."""

    gpus: int = 8
    gpu_model: str = ""
    vram_gb: float = 0.0
    cpu: float = 0.0
    memory_gb: float = 0.0


class Share(msgspec.Struct, frozen=True, gc=False):
    """A part of one GPU: `milli` thousandths of it, beside others on the same card.

    The shares on a card come to `multiplicity` GPUs at most, or to less where another lease there says so: 1
    is for who shares nothing of what he has. A lease may take `vram_mib` MiB of the card's memory; in a
    request that is 0, for the card that it gets decides.
    """

    milli: int
    multiplicity: int = 1
    vram_mib: int = 0


class Paused(msgspec.Struct, frozen=True, gc=False):
    """How far a cell had come that was paused: it computed for `ran_s`, and stood still for `paused_s`."""

    ran_s: float
    paused_s: float = 0.0


class LeaseRequest(msgspec.Struct, frozen=True, gc=False):
    """A wish for `gpus` GPUs of one model on one host for `ttl_s` seconds.

    `hosts` are those that may serve it; empty means the hosts of the kernel's replicas, or any host if
    the scheduler does not know the kernel. `vram_gb` is what each GPU must have; of a `share`, what may be
    taken (0: the same fraction of the card's memory). `expected_s` is how long the
    asker thinks that it will hold them (0: it does not say), whatever `ttl_s` is; it only counts where others
    wait (policy `backfill`).
    """

    request: RequestId
    kernel_id: KernelId
    gpus: int
    ttl_s: float
    hosts: tuple[HostName, ...] = ()
    user: UserName = NOBODY
    gpu_model: str = ""
    vram_gb: float = 0.0
    cpu: float = 0.0
    memory_gb: float = 0.0
    expected_s: float = 0.0
    holder: Literal["job", "engine"] | UnsetType = UNSET
    """Who holds it if no cell does, free of charge: a job on idle GPUs, or an engine's own jobs."""
    share: Share | UnsetType = UNSET
    """What is wanted of the one GPU, where not all of it is."""
    preemptible: Literal[True] | UnsetType = UNSET
    """Set where the cell can be paused for a shorter one, and its owner or a group of his allows it."""
    paused: Paused | UnsetType = UNSET
    """Of a cell that was paused, and goes on with this."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A grant of `gpus` on `host` until `expires_at`, unless renewed: exclusive, but for a `share` of one."""

    lease: LeaseId
    request: RequestId
    kernel_id: KernelId
    host: HostName
    gpus: tuple[GpuUuid, ...]
    fence: Fence
    ttl_s: float
    expires_at: float
    user: UserName = NOBODY
    price: Price | UnsetType = UNSET
    """Where there are prices."""
    share: Share | UnsetType = UNSET


class KernelSpec(msgspec.Struct, frozen=True, gc=False):
    """A kernel to place: what each of its replicas subscribes to, on how many hosts, and on which never."""

    kernel_id: KernelId
    user: UserName = NOBODY
    gpus: int = 0
    replicas: int = 3
    gpu_model: str = ""
    vram_gb: float = 0.0
    cpu: float = 0.0
    memory_gb: float = 0.0
    without: tuple[HostName, ...] = ()


class Booking(msgspec.Struct, frozen=True, gc=False):
    """So many GPUs for `users`, and whoever of `group` shows up, from `at` until `until`; `by` made it.

    `begins` is the same time as `at` for people (Unix time): it stays as it is while the driver is away.
    """

    booking: BookingId
    gpus: int
    at: float
    until: float
    begins: float
    users: tuple[UserName, ...] = ()
    group: str = ""
    gpu_model: str = ""
    by: UserName = NOBODY


class UserQuota(msgspec.Struct, frozen=True, gc=False):
    """What a user may have; None is no limit. A higher priority is served before a lower one.

    `budget_month` is in the money of the prices. `group_budgets` are those that all members of a group share.
    """

    gpu_quota: int | None = None
    gpu_hours_month: float | None = None
    priority: int = 0
    budget_month: float | UnsetType = UNSET
    group_budgets: tuple[tuple[str, float], ...] | UnsetType = UNSET
    preemptible: bool | UnsetType = UNSET
    """Whether all of the user's cells that can be paused may be."""
    idle_gpus: str | UnsetType = UNSET
    """What holds for the user's cells that leave their GPUs idle; the core keeps it for its service."""


class CellUsage(msgspec.Struct, frozen=True, gc=False):
    """One row of the accounts: what one lease of one cell cost. Times are seconds, `gpus` what was leased.

    That is a whole number, but for a share of a GPU.
    """

    request: RequestId
    lease: LeaseId
    kernel_id: KernelId
    user: UserName
    host: HostName
    gpus: int | float
    asked_at: float
    queued_s: float
    leased_s: float
    busy_s: float
    cost: float | UnsetType = UNSET
    """Where there are prices."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The sums for a kernel or a user; `reserved_gpu_s` is what holding the GPUs all along would cost."""

    cells: int
    queued_s: float
    leased_s: float
    busy_s: float
    gpu_s: float
    reserved_gpu_s: float
    cost: float | UnsetType = UNSET
    """What the cells cost, where any of it was counted."""

    @property
    def saved_gpu_s(self) -> float:
        """Return the GPU-seconds that a reservation would cost on top; below 0 where leases cost more."""
        return self.reserved_gpu_s - self.gpu_s


class Room(NamedTuple):
    """So many GPUs of one model on one host."""

    gpus: int
    model: str


NO_ROOM = Room(0, "")


class Size(NamedTuple):
    """What a host has of cores and memory, and what of the memory is leased."""

    cores: int
    memory_gb: float
    leased_gb: float
