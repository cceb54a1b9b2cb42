"""A snapshot of everything the scheduler knows, in plain frozen structs.

Law: it is a copy; everything is sorted by id, so the same state encodes to the same bytes.
"""

from __future__ import annotations

from math import inf

import msgspec

from replkernel_scheduler.parts import Parts
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


class HostView(msgspec.Struct, frozen=True):
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


class LeaseView(msgspec.Struct, frozen=True):
    """A lease in force and what it is doing."""

    lease: Lease
    phase: LeasePhase
    granted_at: float
    queued_s: float


class WaitingView(msgspec.Struct, frozen=True):
    """A request that waits; `claim` is the host where nobody behind it is served before it."""

    request: LeaseRequest
    position: int
    asked_at: float
    claim: HostName | None
    migration: MigrationId | None


class KernelView(msgspec.Struct, frozen=True):
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


class MigrationView(msgspec.Struct, frozen=True):
    """A replica that moves, or looks for where to (for ever, where hosts come by themselves)."""

    migration: MigrationId
    kernel_id: KernelId
    request: RequestId | None
    phase: str
    source: HostName | None
    target: HostName | None
    tries: int
    deadline_at: float | None


class ReservationView(msgspec.Struct, frozen=True):
    """A host on its way, and whose shares are kept on it."""

    reservation: ReservationId
    gpus: int
    asked_at: float
    kernels: tuple[KernelId, ...]


class UserView(msgspec.Struct, frozen=True):
    """A user: quota, what is held and waited for, and what was used."""

    user: UserName
    quota: UserQuota
    held: int
    waited: int
    month_gpu_s: float
    usage: Usage


class KernelUsage(msgspec.Struct, frozen=True):
    """What a kernel has used, live or not."""

    kernel_id: KernelId
    user: UserName
    live: bool
    usage: Usage


class ClusterView(msgspec.Struct, frozen=True):
    """Everything."""

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


def take(parts: Parts) -> ClusterView:
    """Return the snapshot; leases oldest first, waiting requests in their order."""
    return ClusterView(
        now=parts.now,
        fence=parts.leases.fence,
        hosts=_hosts(parts),
        reservations=tuple(
            ReservationView(kind.id, kind.shape.gpus, kind.asked_at, tuple(sorted(kind.shares)))
            for kind in parts.reservations.by_id.values()
        ),
        kernels=_kernels(parts),
        leases=tuple(
            LeaseView(record.lease, record.phase, record.granted_at, record.granted_at - record.asked_at)
            for record in sorted(parts.leases.by_id.values(), key=lambda record: record.lease.fence)
        ),
        waiting=tuple(
            WaitingView(
                waiting.wish,
                parts.queue.position(waiting),
                waiting.asked_at,
                None if waiting.claim is None else waiting.claim.name,
                waiting.migration,
            )
            for waiting in parts.queue.ordered()
        ),
        migrations=_migrations(parts),
        users=_users(parts),
        usage=tuple(
            KernelUsage(name, sums.user, sums.live, sums.usage(sums.reserving_s(parts.now)))
            for name, sums in sorted(parts.accounts.kernels.items())
        ),
        subscription_limit_samples=tuple(parts.demand.samples),
    )


def _hosts(parts: Parts) -> tuple[HostView, ...]:
    return tuple(
        HostView(
            name,
            host.state,
            host.offered,
            host.cpu_milli / 1000,
            host.memory_milli / 1000,
            host.committed,
            host.subscribed,
            tuple(sorted(host.replicas)),
            host.prewarmed,
            host.warming,
            host.watched,
        )
        for name, host in sorted(parts.hosts.by_name.items())
    )


def _kernels(parts: Parts) -> tuple[KernelView, ...]:
    return tuple(
        KernelView(
            name,
            kernel.spec.user,
            kernel.spec.gpus,
            tuple(host.name for host in kernel.hosts),
            kernel.missing,
            kernel.last,
            kernel.pinned,
            kernel.reported,
            kernel.movable,
        )
        for name, kernel in sorted(parts.kernels.by_id.items())
    )


def _migrations(parts: Parts) -> tuple[MigrationView, ...]:
    return tuple(
        MigrationView(
            move.id,
            move.kernel_id,
            None if move.waiting is None else move.waiting.wish.request,
            move.phase,
            None if move.source is None else move.source.name,
            None if move.target is None else move.target.name,
            move.tries,
            move.deadline_at if move.deadline_at < inf else None,
        )
        for move in parts.migrations.by_id.values()
    )


def _users(parts: Parts) -> tuple[UserView, ...]:
    running: dict[UserName, float] = {}
    for sums in parts.accounts.kernels.values():
        running[sums.user] = running.get(sums.user, 0.0) + sums.reserving_s(parts.now)
    return tuple(
        UserView(
            name,
            user.quota,
            user.held,
            user.waited,
            user.used_s(parts.now),
            parts.accounts.user(name).usage(running.get(name, 0.0)),
        )
        for name, user in sorted(parts.users.by_name.items())
    )
