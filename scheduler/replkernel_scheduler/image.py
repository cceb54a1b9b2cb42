"""The whole state of a core as plain records, from which another core goes on as if it were the first.

Law: order is kept wherever a decision could depend on it; what follows from the rest (loads, lines, idle
GPUs) is not in it. FORMAT changes with every record here: who reads one of another format has none. A new
last field whose default means what there was before leaves it as it is: an older program ignores the field.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from replkernel_scheduler.effects import Effect
from replkernel_scheduler.events import Event
from replkernel_scheduler.pauses import NewcomerPhase
from replkernel_scheduler.pool.types import Context, Deferral
from replkernel_scheduler.timers import TimerKind
from replkernel_scheduler.types import (
    Booking,
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    HostShape,
    HostState,
    KernelId,
    KernelSpec,
    Lease,
    LeaseId,
    LeasePhase,
    LeaseRequest,
    MigrationId,
    Prices,
    RequestId,
    Shape,
    UserName,
    UserQuota,
)

FORMAT = 3


class Image(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of all records."""


class HostImage(Image, frozen=True, array_like=True, gc=False):
    """A host; sizes in thousandths. Its replicas are in the order in which they came."""

    name: HostName
    state: HostState
    offered: tuple[Gpu, ...]
    released: bool
    watched: bool
    cpu: tuple[int, int, int]
    """What there is, what is free, what is subscribed."""
    memory: tuple[int, int, int]
    subscribed: int
    prewarmed: int
    warming: int
    moves: int
    replicas: tuple[KernelId, ...]


class LeaseImage(Image, frozen=True, array_like=True, gc=False):
    """A lease; `pool` is the number of its GPUs' pool on its host."""

    lease: Lease
    phase: LeasePhase
    pool: int
    wish: LeaseRequest
    asked_at: float
    granted_at: float
    estimate: float
    home: LeaseId | None
    warm: bool
    rested: tuple[float, float, float]
    """Since when it lingers, since when it is wanted back, and the GiB that lie on its GPUs."""
    kept: bool = False
    """Whether its kernel's state cannot leave its GPUs."""
    paid: tuple[float, float] | None = None
    """What it had cost when its price last changed, and when that was; None: since it was granted."""
    pausable: bool = False
    """Whether its cell may be paused."""
    pausing: RequestId | None = None
    """For whom it is being paused."""
    told: bool = False
    """Whether it was ever told to stand still, and may ask to go on."""
    again_at: float = 0.0
    """Before that it is not told to again, for it has refused."""


class WaitingImage(Image, frozen=True, array_like=True, gc=False):
    """A request that waits, or whose GPUs are bound for a replica on its way."""

    wish: LeaseRequest
    key: tuple[Any, ...]
    asked_at: float
    hosts: tuple[HostName, ...] | None
    claim: HostName | None
    migration: MigrationId | None
    tag: float
    estimate: float
    told: int
    gave_up: bool = False


class KernelImage(Image, frozen=True, array_like=True, gc=False):
    """A live kernel."""

    spec: KernelSpec
    hosts: tuple[HostName, ...]
    last: HostName | None
    pinned: HostName | None
    missing: int
    placed: bool
    reported: bool
    movable: bool
    told: int


class MigrationImage(Image, frozen=True, array_like=True, gc=False):
    """A migration; `waiting` is in the queue while it seeks, `bound` is its request while it moves."""

    number: int
    kernel_id: KernelId
    deadline_at: float
    phase: Literal["seeking", "moving"]
    tries: int
    source: HostName | None
    target: HostName | None
    lease: LeaseId | None
    waiting: RequestId | None
    bound: WaitingImage | None
    wanted: HostName | None
    tried: tuple[HostName, ...]
    hopes: HostName | None = None


class ReservationImage(Image, frozen=True, array_like=True, gc=False):
    """A host on its way."""

    number: int
    shape: HostShape
    asked_at: float
    shares: tuple[tuple[KernelId, int], ...]


class UserImage(Image, frozen=True, array_like=True, gc=False):
    """A user."""

    name: UserName
    quota: UserQuota
    held: int
    waited: int
    gpu_s_month: float
    since: float
    tag: float
    last_tag: float
    money: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """What was charged, until when that is counted, and what of it was before this month."""
    shares: tuple[int, int] = (0, 0)
    """Of shares, the thousandths that are held and waited for."""


class SumsImage(Image, frozen=True, array_like=True, gc=False):
    """What was used."""

    cells: int
    queued_s: float
    leased_s: float
    busy_s: float
    gpu_s: float
    reserved_gpu_s: float
    cost: float = 0.0


class KernelSumsImage(Image, frozen=True, array_like=True, gc=False):
    """What a kernel has used, live or not."""

    kernel_id: KernelId
    user: UserName
    sums: SumsImage
    began: float | None
    since: float | None
    gpus: int
    live: bool


class TimerImage(Image, frozen=True, array_like=True, gc=False):
    """A timer; of two that are due at once the one with the smaller number goes first."""

    kind: TimerKind
    name: str
    at: float
    number: int


class DemandImage(Image, frozen=True, array_like=True, gc=False):
    """D, B and the samples of D/B."""

    requested: int
    committed: int
    samples: tuple[float, ...]
    next_at: float | None


class BookingImage(Image, frozen=True, array_like=True, gc=False):
    """What is booked, and what is set aside: by host and the number of its pool."""

    booking: Booking
    users: tuple[UserName, ...]
    phase: Literal["planned", "gathering", "open"]
    aside: tuple[tuple[HostName, int, tuple[GpuUuid, ...]], ...]


class NewcomerImage(Image, frozen=True, array_like=True, gc=False):
    """A request for which others are to be paused."""

    request: RequestId
    host: HostName
    victims: tuple[LeaseId, ...]
    context: Context
    phase: NewcomerPhase


class WatchImage(Image, frozen=True, array_like=True, gc=False):
    """A deferral that is not judged yet."""

    context: Context
    gpus: int
    chosen_s: float
    needed_s: float
    taken_at: float
    until: float


class PausesImage(Image, frozen=True, array_like=True, gc=False):
    """What is known of pauses beside their leases."""

    newcomers: tuple[NewcomerImage, ...]
    owed: tuple[KernelId, ...]
    arrived: tuple[float, ...]
    watched: tuple[WatchImage, ...]
    judged: tuple[Deferral, ...]
    judged_count: int
    pause_s: float
    outlasted: tuple[tuple[KernelId, int], ...] = ()


class CoreImage(Image, frozen=True, array_like=True, gc=False):
    """Everything."""

    now: float
    asked: int
    out: tuple[Effect, ...]
    fence: Fence
    hosts: tuple[HostImage, ...]
    shapes: tuple[tuple[str, float, int, int, int], ...]
    leases: tuple[LeaseImage, ...]
    resting: tuple[tuple[KernelId, tuple[LeaseId, ...]], ...]
    waiting: tuple[WaitingImage, ...]
    any_lines: tuple[Shape, ...]
    kernels: tuple[KernelImage, ...]
    short: tuple[KernelId, ...]
    asks: tuple[tuple[KernelId, tuple[RequestId, ...]], ...]
    users: tuple[UserImage, ...]
    virtual: float
    kernel_sums: tuple[KernelSumsImage, ...]
    user_sums: tuple[tuple[UserName, SumsImage], ...]
    mean_hold_s: float | None
    demand: DemandImage
    migrations: tuple[MigrationImage, ...]
    migrations_issued: int
    migrations_looking: tuple[MigrationId, ...]
    reservations: tuple[ReservationImage, ...]
    reservations_issued: int
    mean_boot_s: float
    rate: tuple[float, float, float]
    """Seconds until a pre-warmed process is ready, the weight of the uses, and when that was."""
    timers: tuple[TimerImage, ...]
    timers_set: int
    history: tuple[tuple[float, Event], ...]
    prices: Prices | None = None
    provider: tuple[float, float] = (0.0, 0.0)
    """What the hosts have cost, and until when that is counted."""
    bookings: tuple[BookingImage, ...] = ()
    pauses: PausesImage | None = None
    """None: nobody was ever to be paused."""
    budgets: tuple[tuple[str, float], ...] = ()
    """What was said last of groups' budgets."""
    month: str = ""
