"""The scheduler's one entry: each event goes to who decides about it, at the time that the driver says.

Pure: the same events at the same times with the same seed give the same effects. It never sleeps and reads
no clock. Timers that were due before an event are run before it, at the event's time; of what happens at
the same time, what frees comes first, then hosts, timers, arrivals (spec 0.1). An event that raises changes
nothing, and the effects of timers that ran before it are returned by the next call; so a journal holds it
like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Any

from replkernel_scheduler import imaging, laws, restoring, viewing, wishes
from replkernel_scheduler.bookings import Bookings
from replkernel_scheduler.choosing import Choosing
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.events import (
    TIMERS,
    BookingCancelled,
    BookingJoined,
    BookingMade,
    DeferralChosen,
    Event,
    GpusWanted,
    HolderGone,
    HostAway,
    HostDown,
    HostDrained,
    HostNotProvisioned,
    HostUndrained,
    HostUp,
    KernelEnded,
    KernelPinned,
    KernelReported,
    KernelStarted,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    MonthBegan,
    MoveAsked,
    PauseFailed,
    Prewarmed,
    PrewarmFailed,
    PricesSet,
    QuotaSet,
    ReplicaFailed,
    ReplicaLost,
    ReplicaReady,
    Resumed,
    TimeReached,
)
from replkernel_scheduler.expecting.durations import Durations
from replkernel_scheduler.expecting.lines import Lines, picture
from replkernel_scheduler.granting import Granting
from replkernel_scheduler.host_life import HostLife
from replkernel_scheduler.hosts import MILLI
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.kernel_life import KernelLife
from replkernel_scheduler.lease_life import LeaseLife
from replkernel_scheduler.moving import Moving
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.placing import Placement, Placing
from replkernel_scheduler.policies.protocol import Dice
from replkernel_scheduler.pool.types import Deferral
from replkernel_scheduler.scaling import ScalingPass
from replkernel_scheduler.serving import Serving
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_scheduler.timers import TimerKind
from replkernel_scheduler.types import (
    NO_FENCE,
    NO_ROOM,
    BookingId,
    Fence,
    HostName,
    KernelId,
    LeaseId,
    LeaseRequest,
    MigrationId,
    Prices,
    RequestId,
    ReservationId,
    Room,
    Size,
    UserName,
)
from replkernel_scheduler.view import BookingView, ClusterView
from replkernel_scheduler.warming import Warming
from replkernel_scheduler.yielding import Yielding


class SchedulerCore:
    """Hosts, kernels, leases, the queue, migrations and accounts, as one state machine."""

    def __init__(
        self, dice: Dice, policies: Policies, settings: CoreSettings | None = None, fence: Fence = NO_FENCE
    ) -> None:
        """Start empty. `dice` is a random.Random with a seed; every lease carries a fence above `fence`."""
        parts = Parts(settings or CoreSettings(), policies, dice, fence)
        choosing = Choosing(parts)
        self._parts = parts
        self._serving = Serving(parts, choosing)
        self._warming = Warming(parts)
        self._granting = Granting(parts, choosing, self._serving)
        self._leases = LeaseLife(parts, self._serving, self._warming)
        self._placing = Placing(parts, self._serving)
        self._moving = Moving(parts, choosing, self._granting, self._leases, self._placing)
        self._kernels = KernelLife(parts, self._granting, self._leases, self._moving, self._placing)
        self._hosts = HostLife(
            parts, self._granting, self._leases, self._kernels, self._moving, self._placing, self._warming
        )
        self._bookings = Bookings(parts, self._serving)
        self._yielding = Yielding(parts, self._serving)
        self._scaling = ScalingPass(parts, self._hosts, self._placing)
        self._leases.draining = self._hosts.go_on
        self._kernels.go_on_draining = self._hosts.go_on_draining
        self._serving.granting, self._serving.moving = self._granting, self._moving
        self._serving.freed = self._moving.looking.freed
        self._granting.moving, self._granting.warming = self._moving, self._warming
        self._deciders = self._table()
        self._woken = parts.migrations.woken
        self._runners: dict[TimerKind, Callable[[Any], None]] = {
            "lease": lambda name: self._leases.due(LeaseId(name)),
            "migration": lambda name: self._moving.due(MigrationId(name)),
            "reservation": lambda name: self._hosts.late(ReservationId(name)),
            "scaling": lambda _: self._scaling.due(),
            "placing": lambda _: self._placing.due(),
            "prewarm": lambda name: self._warming.due(HostName(name)),
            "late": lambda name: self._serving.late(LeaseId(name)),
            "booking": lambda name: self._bookings.due(BookingId(name)),
            "deferral": lambda name: self._serving.pausing.deferred(RequestId(name)),
            "pausing": lambda name: self._serving.pausing.late(LeaseId(name)),
        }

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event that happened at `now` and return what follows from it.

        Raises ValueError if the time went back, UnexpectedEvent if the event cannot follow those before.
        """
        parts = self._parts
        if not parts.now <= now < inf:
            raise ValueError(f"The clock went back, or stands nowhere: from {parts.now} to {now}.")
        parts.now = now
        demand = parts.demand
        if demand.next_at is None or now >= demand.next_at:
            demand.advance(now)
        due = parts.timers.next_at() if parts.timers.soonest <= now else None
        if due is not None and (due < now or (due == now and event.turn >= TIMERS)):
            self._run_timers(including_now=event.turn >= TIMERS)
        parts.history.keep((now, event))
        if parts.booked:
            self._beside_bookings(event)
        else:
            self._deciders[type(event)](event)
        if self._serving.touched or self._woken or self._serving.any_shifted:
            self._serving.settle()
        if due is not None and due <= now and event.turn < TIMERS:
            self._run_timers(including_now=True)
        out = parts.out
        parts.out = []
        return out

    def deadline(self) -> float | None:
        """Return when `handle(TimeReached(), …)` is due."""
        return self._parts.timers.next_at()

    def view(self) -> ClusterView:
        """Return what there is now, for people and programs; the same state gives the same bytes."""
        return viewing.at_once(self._parts)

    def view_in_slices(self, tables: Collection[viewing.TableName]) -> viewing.Slices[ClusterView]:
        """Yield after each slice, and return these tables; events may be handled between two slices."""
        return viewing.in_slices(self._parts, tables)

    def image(self) -> CoreImage:
        """Return the whole state, but for the dice; `restore` makes another core go on from it."""
        return imaging.take(self._parts)

    def restore(self, image: CoreImage) -> None:
        """Go on from `image`; raises ImageUnfit if it cannot be. Nothing may have happened here before."""
        restoring.restore(self._parts, image)

    def owner_of_kernel(self, kernel_id: KernelId) -> UserName | None:
        """Return under whose name a kernel first came, live or not; None if nobody knows it."""
        sums = self._parts.accounts.kernels.get(kernel_id)
        return None if sums is None else sums.user

    def hosts_for(self, kernel_id: KernelId, replicas: int) -> list[HostName]:
        """Return the hosts for a kernel that wants nothing of them, the best first; none is draining."""
        return self._placing.suggest(kernel_id, replicas)

    def placement_of(self, kernel_id: KernelId) -> Placement | None:
        """Return where a live kernel has replicas and what it waits for; None if nobody knows it."""
        return self._placing.standing(kernel_id)

    def beside(self, occupants: Callable[[HostName], int]) -> None:
        """Have hosts kept where `occupants` counts any who hold no lease; `left` says that they are gone."""
        self._parts.occupants = occupants

    def left(self, host: HostName) -> list[Effect]:
        """Return what follows once the last of those has left a host."""
        self._hosts.left(host)
        out = self._parts.out
        self._parts.out = []
        return out

    def draining_awaits(self, host: HostName) -> dict[str, int]:
        """Return, for a host that is being drained, what it has still, by reason, and how many."""
        found = self._parts.hosts.by_name.get(host)
        return {} if found is None else self._hosts.awaits(found)

    def hosts_up(self) -> list[HostName]:
        """Return the hosts that are up, in the order in which they came."""
        return [host.name for host in self._parts.hosts.by_name.values() if host.state == "up"]

    def room(self, host: HostName, gpu_model: str = "", vram_gb: float = 0.0) -> Room:
        """Return what idles on a host that could be leased now, before anybody who waits."""
        found = self._parts.hosts.by_name.get(host)
        return NO_ROOM if found is None else found.room(gpu_model, vram_gb)

    def offers(self, host: HostName, gpu_model: str, vram_gb: float = 0.0) -> bool:
        """Say whether a host has GPUs of this model, leased or not, and nobody waits for any there."""
        found = self._parts.hosts.by_name.get(host)
        return found is not None and found.offers(gpu_model, vram_gb)

    def models(self, wanted: GpusWanted) -> set[str]:
        """Return of which models a host has all that such a job needs, or would get it back."""
        return self._yielding.models(wanted)

    def hosts_known(self) -> list[HostName]:
        """Return the hosts that are up or may come back into sight, in the order in which they came."""
        return [host.name for host in self._parts.hosts.by_name.values() if host.state in ("up", "down")]

    def size_of(self, host: HostName) -> Size | None:
        """Return what a host has that is up, or may come back into sight; None: there is none such."""
        found = self._parts.hosts.by_name.get(host)
        if found is None or found.state not in ("up", "down"):
            return None
        leased = found.memory_milli - found.memory_free
        return Size(found.cpu_milli // MILLI, found.memory_milli / MILLI, leased / MILLI)

    def is_there(self, host: HostName) -> bool:
        """Say whether a host is known, however it stands."""
        return host in self._parts.hosts.by_name

    def gpus_of(self, host: HostName, wish: LeaseRequest) -> int:
        """Return the most GPUs that a host could lease to such a request, with nothing else on it."""
        found = self._parts.hosts.by_name.get(host)
        return 0 if found is None or found.state not in ("up", "down") else found.gpus_for(wish)

    def models_of(self, host: HostName, wish: LeaseRequest) -> dict[str, int]:
        """Return of which models a host could lease to a request, and how many with nothing else on it."""
        found = self._parts.hosts.by_name.get(host)
        return {} if found is None or found.state not in ("up", "down") else found.models_for(wish)

    def why_never(self, wish: LeaseRequest) -> str:
        """Say why no host that is up, or can be provisioned, could serve a request; "" if one could."""
        return "" if wishes.possible_anywhere(self._parts, wish) else wishes.impossible(self._parts, wish)

    def idle_for(self, host: HostName, wish: LeaseRequest) -> bool:
        """Say whether all of a request is idle on a host, and nobody who waits has a claim there."""
        found = self._parts.hosts.by_name.get(host)
        return (
            found is not None
            and found.state == "up"
            and not found.claims
            and found.pool_with(wish) is not None
        )

    def estimate_s(self, request: RequestId) -> float | None:
        """Guess how long a request waits from now on; None if it waits no more, or too little is known."""
        waiting = self._parts.queue.by_request.get(request)
        return None if waiting is None else self._serving.asking.estimate_s(waiting)

    def bookings(self) -> list[BookingView]:
        """Return what is booked, the next one first."""
        return [
            BookingView(one.booking, tuple(one.users), one.phase, self._bookings.ready(one))
            for one in self._parts.booked.values()
        ]

    def booked_for(self, groups: Collection[str], user: UserName) -> list[BookingId]:
        """Return what is booked for any of these groups, and not known yet to be this user's as well."""
        booked = self._parts.booked
        return [name for name, one in booked.items() if one.booking.group in groups and user not in one.users]

    def lines(self, durations: Durations) -> Lines:
        """Return who waits where, and how long what runs is likely to last by what `durations` has seen."""
        return picture(self._parts, durations)

    def place_of(self, request: RequestId) -> int | None:
        """Return the place of a request; None if it waits no more."""
        waiting = self._parts.queue.by_request.get(request)
        return None if waiting is None else self._parts.queue.position(waiting)

    def wish_of(self, lease: LeaseId) -> LeaseRequest | None:
        """Return the request that a lease in force was granted for."""
        record = self._parts.leases.by_id.get(lease)
        return None if record is None else record.wish

    @property
    def prices(self) -> Prices | None:
        """Return what is charged; None: nothing is."""
        return self._parts.ledger.prices

    @property
    def month(self) -> str:
        """Return which month it is (`2026-11`); nothing: nobody has said so."""
        return self._parts.ledger.month

    def deferrals(self, since: int) -> tuple[int, list[Deferral]]:
        """Return how many deferrals have been judged, and those after the first `since` that are kept."""
        return self._serving.pausing.judged(since)

    def gpu_quota(self, user: UserName) -> int | None:
        """Return how many GPUs a user may have at once; None: as many as there are."""
        known = self._parts.users.by_name.get(user)
        return None if known is None else known.quota.gpu_quota

    def over_quota(self, wish: LeaseRequest, now: float) -> str:
        """Say which quota of its user a request would break, with all that he has and waits for."""
        known = self._parts.users.by_name.get(wish.user)
        return "" if known is None else known.problem(wish, now) or ""

    @property
    def keeps(self) -> bool:
        """Say whether kernels keep what lingers: it is never asked back."""
        return self._parts.policies.keeps

    def check_invariants(self) -> None:
        """Raise InvariantBroken if a law does not hold."""
        laws.check(self._parts)

    def _beside_bookings(self, event: Event) -> None:
        """Decide about an event; what is booked is set aside again, also if it raises."""
        self._bookings.before(event)
        try:
            self._deciders[type(event)](event)
        finally:
            self._bookings.after()

    def _run_timers(self, *, including_now: bool) -> None:
        parts = self._parts
        while (at := parts.timers.next_at()) is not None and (
            at < parts.now or (including_now and at == parts.now)
        ):
            kind, name = parts.timers.pop()
            self._runners[kind](name)
            if parts.booked:
                self._bookings.after()
            self._serving.settle()

    def _table(self) -> dict[type[Event], Callable[[Any], None]]:
        parts = self._parts

        def quota_set(event: QuotaSet) -> None:
            user = parts.users.get(event.user)
            user.quota = event.quota
            parts.ledger.belongs(user)

        def month_began(event: MonthBegan) -> None:
            parts.users.month_began(parts.now)
            parts.ledger.month_began(event.month)

        def resumed(event: Resumed) -> None:
            self._leases.resume(event)
            self._serving.pausing.resumed()

        def host_up(event: HostUp) -> None:
            self._scaling.begin()
            self._hosts.up(event)

        return {
            HostUp: host_up,
            HostDown: self._hosts.down,
            HostAway: self._hosts.away,
            HostDrained: self._hosts.drain,
            HostUndrained: self._hosts.undrain,
            HostNotProvisioned: self._hosts.not_provisioned,
            LeaseAsked: lambda event: self._granting.ask(event.request),
            LeaseWithdrawn: lambda event: self._granting.withdraw(event.request),
            LeaseRenewed: self._leases.renew,
            LeaseReleased: self._leases.release,
            LeaseLingered: self._leases.linger,
            HolderGone: self._leases.holder_gone,
            GpusWanted: self._yielding.wanted,
            KernelStarted: self._kernels.start,
            KernelReported: self._kernels.report,
            KernelEnded: self._kernels.end,
            KernelPinned: self._kernels.pin,
            MoveAsked: self._moving.asked,
            ReplicaLost: self._kernels.replica_lost,
            ReplicaReady: self._moving.ready,
            ReplicaFailed: self._moving.failed,
            Prewarmed: self._warming.answered,
            PrewarmFailed: self._warming.answered,
            QuotaSet: quota_set,
            PricesSet: lambda event: parts.ledger.set_prices(event.prices),
            MonthBegan: month_began,
            BookingMade: self._bookings.made,
            BookingJoined: self._bookings.joined,
            BookingCancelled: self._bookings.cancelled,
            DeferralChosen: self._serving.pausing.chosen,
            PauseFailed: self._serving.pausing.failed,
            Resumed: resumed,
            TimeReached: lambda _: None,
        }
