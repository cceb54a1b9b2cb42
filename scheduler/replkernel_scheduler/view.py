"""What the scheduler knows, in plain frozen structs for people and programs.

Law: it is a copy; everything is sorted by id, so the same state encodes to the same bytes.
"""

from __future__ import annotations

import msgspec

from replkernel_scheduler.types import (
    Fence,
    Gpu,
    HostName,
    HostState,
    KernelId,
    Lease,
    LeasePhase,
    LeaseRequest,
    MigrationId,
    RequestId,
    ReservationId,
    Usage,
    UserName,
    UserQuota,
)


class HostView(msgspec.Struct, frozen=True, gc=False):
    """A host; `subscribed` GPUs are what its replicas ask for, `committed` what cells hold."""

    name: HostName
    state: HostState
    gpus: tuple[Gpu, ...]
    cpu: float
    memory_gb: float
    committed: int
    subscribed: int
    replicas: tuple[KernelId, ...]
    prewarmed: int
    warming: int
    watched: bool


class LeaseView(msgspec.Struct, frozen=True, gc=False):
    """A lease in force and what it is doing."""

    lease: Lease
    phase: LeasePhase
    granted_at: float
    queued_s: float


class WaitingView(msgspec.Struct, frozen=True, gc=False):
    """A request that waits; `claim` is the host where nobody behind it is served before it."""

    request: LeaseRequest
    position: int
    asked_at: float
    claim: HostName | None
    migration: MigrationId | None


class KernelView(msgspec.Struct, frozen=True, gc=False):
    """A live kernel."""

    kernel_id: KernelId
    user: UserName
    gpus: int
    hosts: tuple[HostName, ...]
    missing: int
    last: HostName | None
    pinned: HostName | None
    reported: bool
    movable: bool


class MigrationView(msgspec.Struct, frozen=True, gc=False):
    """A replica that moves, or looks for where to (for ever, where hosts come by themselves)."""

    migration: MigrationId
    kernel_id: KernelId
    request: RequestId | None
    phase: str
    source: HostName | None
    target: HostName | None
    tries: int
    deadline_at: float | None


class ReservationView(msgspec.Struct, frozen=True, gc=False):
    """A host on its way, and whose shares are kept on it."""

    reservation: ReservationId
    gpus: int
    asked_at: float
    kernels: tuple[KernelId, ...]


class UserView(msgspec.Struct, frozen=True, gc=False):
    """A user: quota, what is held and waited for, and what was used."""

    user: UserName
    quota: UserQuota
    held: int
    waited: int
    month_gpu_s: float
    usage: Usage


class KernelUsage(msgspec.Struct, frozen=True, gc=False):
    """What a kernel has used, live or not."""

    kernel_id: KernelId
    user: UserName
    live: bool
    usage: Usage


class ClusterView(msgspec.Struct, frozen=True, gc=False):
    """Everything, or some tables of it: those that nobody asked for are empty."""

    now: float
    fence: Fence
    hosts: tuple[HostView, ...]
    reservations: tuple[ReservationView, ...]
    kernels: tuple[KernelView, ...]
    leases: tuple[LeaseView, ...]
    waiting: tuple[WaitingView, ...]
    migrations: tuple[MigrationView, ...]
    users: tuple[UserView, ...]
    usage: tuple[KernelUsage, ...]
    subscription_limit_samples: tuple[float, ...]
