"""What the scheduler wants done or told: a tagged union of frozen structs, performed in list order."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel_scheduler.pool.types import Context
from replkernel_scheduler.types import (
    BookingId,
    CellUsage,
    HostName,
    HostShape,
    KernelId,
    Lease,
    LeaseId,
    MigrationId,
    RequestId,
    ReservationId,
)

EndReason: TypeAlias = Literal[
    "released",
    "expired",
    "host down",
    "gpu gone",
    "reused",
    "kernel ended",
    "replica lost",
    "not given back",
    "holder gone",
]


class SchedulerEffect(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The base of all effects."""


class LeaseGranted(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell the asker that it holds this lease (again, when it asked or renewed again).

    `prewarmed`: the cell has a pre-warmed process of the host to itself (baselines that keep such pools).
    """

    lease: Lease
    prewarmed: bool = False


class LeaseQueued(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell the asker that it waits; `position` 1 is served next, 0 has GPUs and waits for its replica.

    `estimate_s` is a guess from how long leases were held lately; None while too little is known.
    """

    request: RequestId
    position: int
    estimate_s: float | None = None


class LeaseRefused(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell the asker that its request will never be served; `why` is one sentence."""

    request: RequestId
    why: str


class LeaseEnded(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell the holder and the host that the lease is over; its GPUs are free (reused: the next lease's)."""

    lease: Lease
    why: EndReason


class LeaseChanged(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell the holder that its lingering lease has fewer GPUs: a newer one of its kernel has the others."""

    lease: Lease


class LeaseUnknown(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell whoever renewed or released that no lease has this id and fence."""

    lease: LeaseId
    why: str


class ReclaimLease(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Have the holder of a lingering lease move its state off the GPUs and release it until `until`."""

    lease: Lease
    until: float


class DeferralAsked(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Say how long to wait before cells are paused for this request: DeferralChosen is awaited.

    What is chosen comes back as an event, so that a journal decides the same wherever it is played.
    """

    request: RequestId
    context: Context


class PauseLease(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Have the cell that computes under this lease stand still off its GPUs, and release it until `until`.

    A shorter cell has them for about `for_s`. `gpu_model` is what the cell has to go on with.
    """

    lease: Lease
    until: float
    for_s: float
    gpu_model: str


class UsageRecorded(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Keep this row: a lease's use is over."""

    usage: CellUsage


class HostRefused(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell a host that what it offers cannot be; `why` is one sentence."""

    host: HostName
    why: str


class ProvisionHost(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Have a host provisioned; it says `reservation` when it comes up."""

    reservation: ReservationId
    shape: HostShape


class CancelHost(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Give up a host that did not come in time."""

    reservation: ReservationId


class ReleaseHost(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Give a host back: it holds nothing any more. HostDown is awaited."""

    host: HostName


class KernelPlaced(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Start a replica of the kernel on each of `hosts`."""

    kernel_id: KernelId
    hosts: tuple[HostName, ...]


class KernelPending(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell the kernel's owner that it waits for `missing` more hosts with room."""

    kernel_id: KernelId
    missing: int


class KernelRefused(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell the kernel's owner that it can never be placed; `why` is one sentence."""

    kernel_id: KernelId
    why: str


class StartReplica(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Start a replica on `host`, let it take the state over and join; then ReplicaReady or ReplicaFailed.

    `attempt` tells one try of a migration from another.
    """

    migration: MigrationId
    kernel_id: KernelId
    host: HostName
    source: HostName
    prewarmed: bool
    attempt: int = 1


class StopReplica(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Take the kernel's replica on `host` out of its group and stop it."""

    kernel_id: KernelId
    host: HostName


class ReplicaMoved(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell that the kernel's replica on `source` is on `host` now (None: it took a lost one's place)."""

    migration: MigrationId
    kernel_id: KernelId
    host: HostName
    source: HostName | None


class MoveRefused(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell whoever wanted a replica of the kernel on `host` that it stays away; `why` is one sentence."""

    kernel_id: KernelId
    host: HostName
    why: str


class MigrationFailed(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Tell that a migration is given up and rolled back; the kernel is where it was."""

    migration: MigrationId
    kernel_id: KernelId
    why: str


class BookingRefused(SchedulerEffect, frozen=True, tag=True, gc=False):
    """That cannot be booked; `why` is a sentence."""

    booking: BookingId
    why: str


class Prewarm(SchedulerEffect, frozen=True, tag=True, gc=False):
    """Have `count` more processes pre-warmed on `host`; each is answered by Prewarmed or PrewarmFailed."""

    host: HostName
    count: int


Effect: TypeAlias = (
    LeaseGranted
    | LeaseQueued
    | LeaseRefused
    | LeaseEnded
    | LeaseChanged
    | LeaseUnknown
    | ReclaimLease
    | DeferralAsked
    | PauseLease
    | UsageRecorded
    | HostRefused
    | ProvisionHost
    | CancelHost
    | ReleaseHost
    | KernelPlaced
    | KernelPending
    | KernelRefused
    | StartReplica
    | StopReplica
    | ReplicaMoved
    | MoveRefused
    | MigrationFailed
    | BookingRefused
    | Prewarm
)
