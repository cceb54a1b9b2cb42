"""What the scheduler knows, in plain frozen structs for people and programs.

Law: it is a copy; everything is sorted by id, so the same state encodes to the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from replkernel_scheduler.types import (
    Booking,
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    HostState,
    KernelId,
    Lease,
    LeasePhase,
    LeaseRequest,
    MigrationId,
    Prices,
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


_STRONGEST: tuple[LeasePhase, ...] = ("active", "bound", "reserved", "lingering", "reclaiming")


def gpu_phases(leases: Iterable[LeaseView]) -> dict[GpuUuid, LeasePhase]:
    """Return what the GPUs that are leased do; of one with several leases of shares, what counts most."""
    found: dict[GpuUuid, LeasePhase] = {}
    for entry in leases:
        for gpu in entry.lease.gpus:
            before = found.get(gpu)
            if before is None or _STRONGEST.index(entry.phase) < _STRONGEST.index(before):
                found[gpu] = entry.phase
    return found


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
    held: int | float
    waited: int | float
    month_gpu_s: float
    usage: Usage
    spent: float | UnsetType = UNSET
    """What was charged in all, standbys too; with `spent_month`: where there are prices."""
    spent_month: float | UnsetType = UNSET


class KernelUsage(msgspec.Struct, frozen=True, gc=False):
    """What a kernel has used, live or not."""

    kernel_id: KernelId
    user: UserName
    live: bool
    usage: Usage


class MoneyView(msgspec.Struct, frozen=True, gc=False):
    """What the hosts have cost, what users were charged, and what groups with a budget have spent."""

    prices: Prices
    cost: float
    charged: float
    groups: tuple[tuple[str, float], ...]
    """What the members of each group with a budget have spent this month."""
    budgets: tuple[tuple[str, float], ...] = ()
    """What each of these groups may spend."""

    @property
    def margin(self) -> float | None:
        """Return what is left of the revenue, as a share of it (spec 1.10); None without revenue."""
        return (self.charged - self.cost) / self.charged if self.charged else None


class BookingView(msgspec.Struct, frozen=True, gc=False):
    """What is booked, for whom so far, and how many of its GPUs are set aside or held by these."""

    booking: Booking
    users: tuple[UserName, ...]
    phase: Literal["planned", "gathering", "open"]
    ready: int


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
    money: MoneyView | UnsetType = UNSET
