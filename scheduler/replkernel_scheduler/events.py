"""What can happen to the scheduler: a tagged union of frozen structs.

Law: of events at the same time a driver delivers those with the smaller `turn` first: what ends or frees,
then hosts that come, then timers, then what arrives, and last who looks at what has come of it.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from replkernel_scheduler.types import (
    Booking,
    BookingId,
    Fence,
    Gpu,
    HostName,
    KernelId,
    KernelSpec,
    LeaseId,
    LeaseRequest,
    MigrationId,
    Prices,
    RequestId,
    ReservationId,
    UserName,
    UserQuota,
)

FREES, HOSTS, TIMERS, ARRIVES, LATE = range(5)


class SchedulerEvent(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The base of all events; `turn` orders those that happen at the same time."""

    turn: ClassVar[int] = ARRIVES


class HostUp(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A host offers its GPUs; when it is known already, these replace what it offered.

    `reservation` names what it was provisioned for, if the scheduler had it provisioned. `watched`: the
    driver hears from it all the time, and takes it down when it does not.
    """

    turn: ClassVar[int] = HOSTS
    host: HostName
    gpus: tuple[Gpu, ...]
    cpu: float = 0.0
    memory_gb: float = 0.0
    reservation: ReservationId | None = None
    watched: bool = False


class HostDown(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A host is gone with everything that runs on it."""

    turn: ClassVar[int] = FREES
    host: HostName


class HostAway(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A host is out of sight: its leases last, nothing new is leased there, until HostUp or HostDown."""

    turn: ClassVar[int] = FREES
    host: HostName


class HostNotProvisioned(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A host that the scheduler wanted will not come."""

    turn: ClassVar[int] = FREES
    reservation: ReservationId


class LeaseAsked(SchedulerEvent, frozen=True, tag=True, gc=False):
    """Somebody wants GPUs."""

    request: LeaseRequest


class LeaseWithdrawn(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The asker no longer wants its queued request."""

    turn: ClassVar[int] = FREES
    request: RequestId


class LeaseRenewed(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The holder needs its lease for another `ttl_s` from now.

    `stays`: though it is asked back, for its state cannot leave the GPUs; `leaves`: it has not all left yet.
    """

    lease: LeaseId
    fence: Fence
    stays: bool = False
    leaves: bool = False


class LeaseReleased(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The holder gives its GPUs back; `busy_s` is how long they computed (None: all the time)."""

    turn: ClassVar[int] = FREES
    lease: LeaseId
    fence: Fence
    busy_s: float | None = None


class LeaseLingered(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The cell is over and its state stays on the GPUs for as long as nobody else wants them.

    `held_gb` is how much that is: who has the least is asked back first.
    """

    turn: ClassVar[int] = FREES
    lease: LeaseId
    fence: Fence
    busy_s: float | None = None
    held_gb: float = 0.0


class HolderGone(SchedulerEvent, frozen=True, tag=True, gc=False):
    """Nobody speaks for a lease any more: it is over, unless a cell computes under it.

    `ended`: the holder's processes on the lease's host have ended, so no cell does.
    """

    turn: ClassVar[int] = FREES
    lease: LeaseId
    fence: Fence
    ended: bool = False


class GpusAwaited(msgspec.Struct, frozen=True, gc=False):
    """`count` jobs that are no kernels wait for `gpus` GPUs each, on one of `hosts`.

    They want GPUs of this model ("": of any) with so much memory at least.
    """

    hosts: tuple[HostName, ...]
    gpus: int
    count: int = 1
    gpu_model: str = ""
    vram_gb: float = 0.0


class GpusWanted(SchedulerEvent, frozen=True, tag=True, gc=False):
    """An engine's own jobs wait for GPUs: what lingers where they could run is asked back, and no more.

    They get no lease by that: the engine gives them the GPUs. Said again while they wait. `spares`: these
    leases are not asked back, nor those that began to linger after `rested_since` (None: none is too young).
    """

    jobs: tuple[GpusAwaited, ...]
    spares: tuple[LeaseId, ...] = ()
    rested_since: float | None = None


class KernelStarted(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A kernel wants its replicas placed; `hosts` says where they are if they are there already."""

    kernel: KernelSpec
    hosts: tuple[HostName, ...] = ()


class KernelReported(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A kernel says what it asks for and where its replicas are, again when that changes; it places them.

    One that was placed here sees to its replicas itself from then on.
    Of `hosts` those count that are up; none at all says that nobody knows yet, and leaves them as they were.
    `moves`: it moves a replica to another host when it is told to. `executor` ran its last cell.
    """

    kernel: KernelSpec
    hosts: tuple[HostName, ...] = ()
    moves: bool = False
    executor: HostName | None = None


class KernelEnded(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A kernel is over, or hibernates: it has no replicas any more."""

    turn: ClassVar[int] = FREES
    kernel_id: KernelId


class KernelPinned(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The kernel's replica on `host` holds what cannot travel (None: no longer)."""

    kernel_id: KernelId
    host: HostName | None


class MoveAsked(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The kernel's owner wants one of its replicas on `host`."""

    kernel_id: KernelId
    host: HostName


class ReplicaLost(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The kernel's replica on `host` is gone for good, though the host is not."""

    turn: ClassVar[int] = FREES
    kernel_id: KernelId
    host: HostName


class ReplicaReady(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A migration's new replica has the state and is a member of its group."""

    turn: ClassVar[int] = FREES
    migration: MigrationId


class ReplicaFailed(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A migration's new replica will not come; `why` is one sentence."""

    turn: ClassVar[int] = FREES
    migration: MigrationId
    why: str


class Prewarmed(SchedulerEvent, frozen=True, tag=True, gc=False):
    """One pre-warmed process that was wanted on `host` is ready."""

    turn: ClassVar[int] = FREES
    host: HostName


class PrewarmFailed(SchedulerEvent, frozen=True, tag=True, gc=False):
    """One pre-warmed process that was wanted on `host` will not come."""

    turn: ClassVar[int] = FREES
    host: HostName


class QuotaSet(SchedulerEvent, frozen=True, tag=True, gc=False):
    """What `user` may have from now on; leases in force and requests that wait stay."""

    user: UserName
    quota: UserQuota


class PricesSet(SchedulerEvent, frozen=True, tag=True, gc=False):
    """What hosts and GPUs cost from now on; None: nothing is charged."""

    prices: Prices | None


class MonthBegan(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A month begins (`2026-11`): everybody's `gpu_hours_month` and budgets count from nothing."""

    month: str = ""


class HostDrained(SchedulerEvent, frozen=True, tag=True, gc=False):
    """An administrator wants `host` empty: nothing new there, idle replicas move away."""

    host: HostName


class HostUndrained(SchedulerEvent, frozen=True, tag=True, gc=False):
    """An administrator wants `host` used again, which was to be emptied."""

    turn: ClassVar[int] = HOSTS
    host: HostName


class Resumed(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The driver was away and is back: every lease lasts for `grace_s` more at least, to be renewed."""

    turn: ClassVar[int] = FREES
    grace_s: float


class BookingMade(SchedulerEvent, frozen=True, tag=True, gc=False):
    """GPUs are booked; one that is known has these times and sizes from now on."""

    booking: Booking


class BookingJoined(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A user is one of the group for which something is booked."""

    booking: BookingId
    user: UserName


class BookingCancelled(SchedulerEvent, frozen=True, tag=True, gc=False):
    """What is booked is not wanted any more."""

    turn: ClassVar[int] = FREES
    booking: BookingId


class DeferralChosen(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The answer to DeferralAsked: in `defer_s` others are paused for the request, if it still waits."""

    request: RequestId
    defer_s: float


class PauseFailed(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The answer to PauseLease that is no LeaseReleased: the cell computes on; `why` is a clause."""

    turn: ClassVar[int] = FREES
    lease: LeaseId
    fence: Fence
    why: str


class TimeReached(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The driver's timer, armed for `deadline()`, has fired."""

    turn: ClassVar[int] = TIMERS


Event: TypeAlias = (
    HostUp
    | HostDown
    | HostAway
    | HostDrained
    | HostUndrained
    | HostNotProvisioned
    | LeaseAsked
    | LeaseWithdrawn
    | LeaseRenewed
    | LeaseReleased
    | LeaseLingered
    | HolderGone
    | GpusWanted
    | KernelStarted
    | KernelReported
    | KernelEnded
    | KernelPinned
    | MoveAsked
    | ReplicaLost
    | ReplicaReady
    | ReplicaFailed
    | Prewarmed
    | PrewarmFailed
    | QuotaSet
    | PricesSet
    | MonthBegan
    | BookingMade
    | BookingJoined
    | BookingCancelled
    | DeferralChosen
    | PauseFailed
    | Resumed
    | TimeReached
)
