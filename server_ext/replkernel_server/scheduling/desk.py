"""The desk where agents and routers are served: their words become events, what was decided becomes messages.

Pure: `handle(event, now)` returns what is to be done, in order; `deadline()` says when TimeCame is due.
Law: nobody is told of, or touches, another kernel's leases; what nobody has said again after a restart is
given up after its grace. Times are the core's.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec
from replkernel_scheduler.asking import GIVEN_BACK_S
from replkernel_scheduler.bounds import Bounds, UserBounds
from replkernel_scheduler.effects import (
    HostRefused,
    KernelRefused,
    LeaseGranted,
    LeaseQueued,
    LeaseUnknown,
    MoveRefused,
    UsageRecorded,
)
from replkernel_scheduler.events import (
    HostAway,
    HostDown,
    HostUp,
    KernelEnded,
    LeaseAsked,
    LeaseWithdrawn,
)
from replkernel_scheduler.expecting.foresight import Expected, Foresight
from replkernel_scheduler.gangs.types import GangId
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import HostName, KernelId, LeaseId, RequestId, ReservationId
from replkernel_scheduler.view import ClusterView

from replkernel import records
from replkernel.leasing import wire
from replkernel_server.launchers.counting import Counting
from replkernel_server.scheduling import access
from replkernel_server.scheduling.client_registry import Client, ClientRegistry
from replkernel_server.scheduling.desk_words import (
    Act,
    Answered,
    Close,
    Counted,
    DeskEvent,
    Feed,
    Foreseen,
    HostFixed,
    HostTakenDown,
    JobCame,
    Joined,
    KernelAwaited,
    KernelEmptied,
    Left,
    Said,
    Send,
    TimeCame,
    Told,
)
from replkernel_server.scheduling.gang_desk import GangDesk
from replkernel_server.scheduling.guards import Guards
from replkernel_server.scheduling.host_desk import LOST_S, HostDesk
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.job_desk import JobDesk
from replkernel_server.scheduling.kernel_desk import HOST_WAIT_S, UNTOLD_S, KernelDesk, RoutedKernel
from replkernel_server.scheduling.messages import messages, range_in_words
from replkernel_server.scheduling.move_desk import MoveDesk
from replkernel_server.scheduling.owners import Owners
from replkernel_server.scheduling.router_desk import RouterDesk
from replkernel_server.scheduling.underuse import Rule, Underuse

LEASE_TIMES = 10


class DeskTimes(msgspec.Struct, frozen=True):
    """How long a router may be away, and how long is waited for clients after a restart.

    Leases last longer: each renewal is an event in the journal, and a router that is away is noticed anyhow.
    """

    away_s: float = 60.0
    grace_s: float = 30.0
    host_away_s: float = 300.0
    """So long a host that is out of sight keeps its leases."""
    return_s: float = 1.5
    """A router that has not returned after this is not waited for with what it does not compute on."""

    @property
    def lease_s(self) -> float:
        """Return how long a lease lasts that nobody renews."""
        return LEASE_TIMES * self.away_s


class Desk:
    """All clients, and what the core knows through them."""

    def __init__(
        self,
        view: ClusterView,
        now: float,
        times: DeskTimes,
        bounds: UserBounds | None = None,
        beside: HarvestCore | None = None,
    ) -> None:
        """Begin with what a recovered core has in force; without `beside` there are no jobs."""
        self.bounds = Bounds(bounds or UserBounds())
        quotas = {user.user: user.quota for user in view.users}
        self.clients = ClientRegistry(self.bounds, quotas)
        self.times = times
        self.owners = Owners(view)
        self.hosts = HostDesk(view, now, max(times.grace_s, LOST_S), times.host_away_s)
        self.kernels = KernelDesk(view, now, max(times.grace_s, times.away_s), times.grace_s)
        self.moves = MoveDesk(view)
        self.guards = Guards(
            (entry.lease for entry in view.leases if entry.phase != "reserved"),
            (host.name for host in view.hosts if host.watched),
        )
        self.routers = RouterDesk(self.owners, self.hosts, self.moves, times.lease_s, self.bounds)
        self.jobs = None if beside is None else self._job_desk(beside, now)
        self.gangs = (
            None if beside is None or self.jobs is None else GangDesk(beside, self.jobs, now, times.grace_s)
        )
        self.routers.counts_whole = lambda: self.counting is not None
        self.routers.lets_pause = self.clients.lets_pause
        self.counting: Counting | None = None
        """Set where an engine counts GPUs: grants there are told when it has."""
        self.reserved: dict[HostName, ReservationId] = {}
        self.coming: dict[str, str] = {}
        """Hosts that were provisioned, until they come."""
        self.foresight: Foresight | None = None
        """Set by who has the lines looked at."""
        self.underuse = Underuse(None)
        """Set by `follows`."""
        self._due = self._exactly()

    def handle(self, event: DeskEvent, now: float) -> list[Act]:
        """Return what is to be done because of `event`, in order."""
        match event:
            case Said(client, message):
                return list(self._said(client, message, now))
            case Told(effects):
                return list(self._told(effects, now))
            case Counted(grants):
                return list(self._tell(grants, now))
            case Answered():
                return list(self._answered(event, now))
            case Joined():
                return list(self._joined(event))
            case Left(client):
                return list(self._left(client, now))
            case HostFixed(host):
                self.hosts.forget(HostName(host))
                self.hosts.fixed.add(HostName(host))
            case HostTakenDown(host):
                self.hosts.forget(HostName(host))
            case KernelEmptied(kernel_id):
                return list(self._emptied(KernelId(kernel_id)))
            case KernelAwaited(kernel_id, user):
                lost_at = now + self.times.away_s
                self.kernels.awaits(KernelId(kernel_id), user, lost_at)
                self._by(lost_at)
            case JobCame(user):
                return [] if self.jobs is None else list(self.jobs.submitted(user))
            case Foreseen(told):
                return list(self._expects(told, now))
            case TimeCame():
                return list(self._time_came(now))
        return []

    def _job_desk(self, beside: HarvestCore, now: float) -> JobDesk:
        away_s = max(self.times.host_away_s, self.times.grace_s, LOST_S)
        return JobDesk(beside, self._is_not_for_jobs, self.hosts.is_offered_by, now, away_s)

    def deadline(self) -> float:
        """Return when to hand in TimeCame; it may be too early, never too late."""
        return self._due

    def _is_not_for_jobs(self, host: HostName) -> bool:
        """Say whether somebody else has to open or count a host's GPUs before they are used."""
        return self.guards.is_on(host) or (self.counting is not None and self.counting.is_on(host))

    # -- clients come and go ----------------------------------------------------------------------

    def _joined(self, joined: Joined) -> Iterator[Act]:
        client, hello, who = joined.client, joined.hello, joined.identity
        if not hello.name.isprintable():
            yield Close(client, f"The {hello.role}'s name has control characters: name it otherwise.")
            return
        agent = hello.role == "agent"
        if hello.role in ("jobs", "gang"):
            yield from self._joined_for_jobs(joined)
            return
        why = access.why_not_host(who) if agent else access.why_not_route(who, joined.owner, hello.name)
        why = why or self.clients.why_not(who)
        if why:
            yield Close(client, why)
            return
        if not agent:
            kernel_id = KernelId(hello.name)
            leases = self.owners.of_kernel.get(kernel_id, {})
            wishes = self.owners.wishes_of.get(kernel_id, ())
            taken = self.kernels.joins(client, kernel_id, who.user, leases, wishes)
            if taken is None:
                yield Close(client, f"Kernel {hello.name} is another user's: use a kernel of your own.")
                return
            taken[0].pauses, taken[0].idles = hello.pauses, hello.idles
            if taken[1] is not None:
                self.clients.leaves(taken[1])
                yield Close(taken[1], "A newer connection speaks for this kernel.")
        self.clients.joins(client, hello, who)
        quota = self.clients.quota_of(who)
        if quota is not None:
            yield Feed(quota)
        yield Send(client, wire.Welcome(wire.WIRE_VERSION, who.user))

    def _joined_for_jobs(self, joined: Joined) -> Iterator[Act]:
        client, hello, who = joined.client, joined.hello, joined.identity
        why = access.why_not_lease(who) or ("" if self.jobs is not None else "No jobs run here.")
        why = why or self.clients.why_not(who)
        gang = self.gangs if hello.role == "gang" else None
        why = why or ("" if gang is None else gang.why_not(who, GangId(hello.name)))
        if why or self.jobs is None:
            yield Close(client, why)
            return
        self.clients.joins(client, hello, who)
        if gang is None:
            self.jobs.joins(client, who, HostName(hello.name))
        else:
            gang.joins(client, who, GangId(hello.name))
        yield Send(client, wire.Welcome(wire.WIRE_VERSION, who.user))

    def _left(self, client: int, now: float) -> Iterator[Act]:
        known = self.clients.leaves(client)
        if known is None:
            return
        if known.hello.role == "jobs":
            if self.jobs is not None:
                yield from self.jobs.left(client, now)
                self._by(self.jobs.deadline())
            return
        if known.hello.role == "gang":
            if self.gangs is not None:
                self.gangs.left(client, now)
                self._by(self.gangs.deadline())
            return
        if known.hello.role == "agent":
            self.guards.left(client)
            self.hosts.left(client, HostName(known.hello.name))
            return
        gone_at, lost_at = now + self.times.return_s, now + self.times.away_s
        kernel = self.kernels.left(client, KernelId(known.hello.name), now, gone_at, lost_at)
        self._by(min(gone_at, lost_at))
        if kernel is not None:
            yield from self._without_holder(kernel, now)

    def _without_holder(self, kernel: RoutedKernel, now: float) -> Iterator[Act]:
        """End what nobody speaks for."""
        leases = list(self.owners.of_kernel.get(kernel.kernel_id, {}).values())
        for gone in kernel.without_holder(leases, now, self.hosts.is_empty):
            yield Feed(gone)

    def _missed(self, now: float) -> Iterator[Act]:
        """Give up what routers that do not return wish for, and what they hold unseen."""
        for kernel in self.kernels.missed(now):
            for request in sorted(self.owners.wishes_of.get(kernel.kernel_id, ())):
                yield Feed(LeaseWithdrawn(request))
                self.owners.withdrawn(request)
            kernel.held.clear()
            yield from self._without_holder(kernel, now)

    def _left_host(self, who: Identity, host: HostName, kernel_id: KernelId, now: float) -> Iterator[Act]:
        """Note that no process of a kernel is left on a host; a router that lives gives back itself."""
        kernel = self.kernels.kernels.get(kernel_id)
        if kernel is None or (kernel.user != who.user and not who.admin):
            return
        kernel.ended_on.add(host)
        yield from self._without_holder(kernel, now)

    # -- what they say ----------------------------------------------------------------------------

    def _said(self, client: int, message: wire.FromClient, now: float) -> Iterator[Act]:
        known = self.clients.by_id.get(client)
        if known is None:
            return
        bounded = not known.identity.admin
        why = self.bounds.says(known.identity.user, now) if bounded else ""
        if why:
            yield Close(client, why)
            return
        if known.hello.role == "agent":
            yield from self._agent(client, known, message, now)
            return
        if known.hello.role == "gang" or isinstance(message, wire.RanksFailed):
            if self.gangs is not None:
                yield from self.gangs.said(client, known.identity, message, now)
            return
        if known.hello.role == "jobs":
            if self.jobs is not None:
                yield from self.jobs.said(client, message, now)
            if self.gangs is not None and isinstance(message, wire.JobsHere):
                yield from self.gangs.line_came(client, message, now)
            return
        kernel = self.kernels.kernels[KernelId(known.hello.name)]
        if isinstance(message, wire.KernelHere):
            here = self.owners.of_kernel.get(kernel.kernel_id, {})
            for name in {LeaseId(held.lease) for held in message.leases} & here.keys():
                self.guards.named(here[name])
        yield from self.routers.said(client, kernel, message, now, bounded)
        if kernel.held or kernel.untold or kernel.unsaid:
            self._by(now + min(HOST_WAIT_S, UNTOLD_S))

    def _agent(self, client: int, known: Client, message: wire.FromClient, now: float) -> Iterator[Act]:
        name = HostName(known.hello.name)
        match message:
            case wire.HostOffer():
                yield from self._offer(client, name, known.identity, message, now)
            case wire.HostBeat(gpus):
                if self.hosts.beats(client, name, gpus, now):
                    yield from self._idle(name, gpus, now)
                else:
                    offer = self.hosts.to_offer_again(client, now)
                    if offer is not None:
                        yield from self._offer(client, name, known.identity, offer, now)
                for kernel in self.kernels.unseen():
                    yield from self._without_holder(kernel, now)
            case wire.HostLeaves():
                down = self.hosts.leaves(client, name, now, in_use=self.owners.in_use(name))
                if down is not None:
                    self._by(now + self.times.host_away_s)
                    yield from self._lost(down, client)
            case wire.LeasesOpen():
                grants, ends = self.guards.answered(client, name, message)
                yield from self._tell(grants, now)
                if self.guards.stuck(client, name, message.stuck) and (up := self.hosts.up(name)):
                    yield Feed(self.guards.stuck_last(up))
                for end in ends:
                    yield Feed(end)
            case wire.KernelLeft(kernel_id):
                yield from self._left_host(known.identity, name, KernelId(kernel_id), now)
            case _:
                yield Send(
                    client, wire.Refused(f"{type(message).__name__} is for routers to say, not agents.")
                )

    def _offer(
        self, client: int, name: HostName, who: Identity, offer: wire.HostOffer, now: float
    ) -> Iterator[Act]:
        came = self.hosts.offers(client, name, who, offer, now)
        if isinstance(came, str):
            yield Send(client, wire.Refused(came))
            return
        why = self._cannot_guard(client, name, who, offer)
        if why:
            down = self.hosts.refused(client, name, now)
            yield Send(client, wire.Refused(why))
            if down is not None:
                yield Feed(down)
            return
        self._by(now + LOST_S)
        for down in self.hosts.replaces(name, who, offer):
            yield Feed(down)
        due = (
            [] if self.counting is None else self.counting.offered(name, [str(gpu.uuid) for gpu in came.gpus])
        )
        if name in self.reserved:
            came = msgspec.structs.replace(came, reservation=self.reserved.pop(name))
        yield Feed(self.guards.stuck_last(came), client)
        yield from self._tell([*due, *self.guards.due(name)], now)
        if self.jobs is not None:
            yield from self.jobs.offered(name)
        for kernel in self._kernels_on(name):  # Before any wish of theirs that comes from now on.
            yield Feed(kernel.report(), kernel.client)

    def _lost(self, down: HostDown | HostAway, client: int | None = None) -> Iterator[Act]:
        """Take a host down, or out of sight; nobody waits there for a guard."""
        yield Feed(down, client)
        for end in self.guards.away(down.host):
            yield Feed(end)

    def _cannot_guard(self, client: int, name: HostName, who: Identity, offer: wire.HostOffer) -> str:
        """Take note of whether an agent guards its host; say why it cannot."""
        if offer.guarded and self.counting is not None and self.counting.is_on(name):
            return (
                f"An engine says which GPUs of host {name} a lease has, so its device hook cannot be asked: "
                "unset REPLKERNEL_DEVICE_HOOK there, or have people start its agent."
            )
        owns = who.admin or self.hosts.is_of(name, who)
        return self.guards.offers(client, name, guarded=offer.guarded, owns=owns)

    # -- what was decided -------------------------------------------------------------------------

    def _told(self, effects: list[HarvestEffect], now: float) -> Iterator[Act]:
        yield from self._tell(effects if self.counting is None else self.counting.decided(effects), now)
        self._watch(effects, now)
        self.owners.told(effects)
        self.moves.told(effects)
        if self.jobs is not None:
            yield from self.jobs.told(effects, now)
        if self.gangs is not None:
            yield from self.gangs.told(effects, now)

    def _tell(self, effects: list[HarvestEffect], now: float) -> Iterator[Act]:
        for effect in self.guards.decided(effects):
            said = messages(self._as_foreseen(effect, now), now, self.owners, self.why_waits)
            if said is not None:
                kernel = self.kernels.kernels.get(said[0])
                if kernel is not None and kernel.client is not None:
                    yield Send(kernel.client, said[1])
                elif kernel is not None and isinstance(effect, LeaseGranted) and self._is_new(effect):
                    kernel.unheard.add(effect.lease.lease)
                    yield from self._without_holder(kernel, now)
        for client, leases in self.guards.words():
            yield Send(client, leases)

    def follows(self, rule: Rule | None, view: ClusterView, now: float) -> None:
        """Have cells told that leave their GPUs idle, also those that have some already."""
        self.underuse = Underuse(rule)
        for entry in view.leases:
            if entry.phase == "active":
                self.underuse.began(entry.lease, now, self.clients.quota_now(entry.lease.user))

    def _watch(self, effects: list[HarvestEffect], now: float) -> None:
        """Have the GPUs looked at that cells have from now on, and no more those of cells that are over."""
        for effect in effects:
            match effect:
                case LeaseGranted(lease) if self._is_new(effect):
                    self.underuse.began(lease, now, self.clients.quota_now(lease.user))
                case UsageRecorded(usage):
                    self.underuse.over(usage.lease)

    def _idle(self, host: HostName, gpus: tuple[wire.GpuUse, ...], now: float) -> Iterator[Act]:
        """Tell the routers of cells that leave their GPUs idle."""
        for idle in self.underuse.seen(host, gpus, now, lambda kernel_id: self._idles(kernel_id) is not None):
            client = self._idles(idle.kernel_id)
            if client is not None:
                told = wire.LeaseIdle(idle.lease, round(idle.share, 4), round(idle.for_s, 1), idle.ends_in_s)
                yield Send(client, told)

    def _idles(self, kernel_id: KernelId) -> int | None:
        """Return the router that can be told now that its cell leaves GPUs idle."""
        kernel = self.kernels.kernels.get(kernel_id)
        return None if kernel is None or not kernel.idles else kernel.client

    def _expects(self, told: list[Expected], now: float) -> Iterator[Act]:
        """Tell routers what their cells may expect."""
        effects = [LeaseQueued(one.request, one.place, one.wait_s) for one in told]
        yield from self._tell(list(effects), now)

    def _as_foreseen(self, effect: HarvestEffect, now: float) -> HarvestEffect:
        """Say what was foreseen in the place of the core's own guess, but for GPUs that are on their way."""
        if not isinstance(effect, LeaseQueued) or not effect.position or self.foresight is None:
            return effect
        return LeaseQueued(
            effect.request, effect.position, self.wait_s(effect.request, effect.estimate_s, now)
        )

    def wait_s(self, request: RequestId, guess_s: float | None, now: float) -> float | None:
        """Return how long a request is expected to wait: as foreseen, or as the core guesses."""
        if self.foresight is None or (guess_s is not None and guess_s <= GIVEN_BACK_S):
            return guess_s
        left_s = self.foresight.left_s(request, now)
        return guess_s if left_s is None else round(left_s, 3)

    def why_waits(self, request: RequestId) -> str:
        """Say how sure its wait is, and what a request waits for; empty where nobody has looked."""
        if self.foresight is None:
            return ""
        clauses = (range_in_words(self.foresight.range_s(request)), self.foresight.why(request))
        return "; ".join(filter(None, clauses))

    def _is_new(self, granted: LeaseGranted) -> bool:
        """Say whether it tells of a lease that is new; a renewal is told of in the same words."""
        return granted.lease.lease not in self.owners.leases

    def _answered(self, answered: Answered, now: float) -> Iterator[Act]:
        client, event = answered.client, answered.event
        if answered.never and isinstance(event, LeaseAsked):
            self.owners.withdrawn(event.request.request)
            yield Send(client, wire.Denied(event.request.request, answered.why))
            return
        if answered.why:
            yield Send(client, wire.Refused(answered.why))
            return
        if isinstance(event, LeaseWithdrawn):
            self.owners.withdrawn(event.request)
        if self.jobs is not None:
            yield from self.jobs.answered(client, event)
        for effect in answered.effects:
            match effect:
                case LeaseUnknown(lease, why):
                    yield Send(client, wire.LeaseOver(lease, why))
                case HostRefused(host, why):
                    yield Send(client, wire.Refused(why))
                    down = self.hosts.refused(client, host, now)
                    if down is not None:
                        yield Feed(down)
                    return
                case KernelRefused(_, why):
                    yield Send(client, wire.Refused(why))
                case MoveRefused(_, host, why):
                    yield Send(client, wire.MoveDenied(records.HostName(host), why))
        if isinstance(event, HostUp):
            for kernel in self._kernels_on(event.host):
                yield from self.routers.release(kernel)

    def _kernels_on(self, name: HostName) -> list[RoutedKernel]:
        """Return the kernels whose routers have told that they are on a host."""
        kernels = self.kernels.kernels.values()
        return [kernel for kernel in kernels if kernel.here is not None and str(name) in kernel.here.hosts]

    def _emptied(self, kernel_id: KernelId) -> Iterator[Act]:
        kernel = self.kernels.kernels.get(kernel_id)
        if kernel is None:
            return
        if kernel.client is None:
            del self.kernels.kernels[kernel_id]
        elif kernel.here is not None:
            yield Feed(kernel.report(), kernel.client)

    # -- time -------------------------------------------------------------------------------------

    def _time_came(self, now: float) -> Iterator[Act]:
        for down in self.hosts.due(now):
            yield from self._lost(down)
        for back in self.kernels.lost_words(now):
            yield Feed(back)
            if isinstance(back, LeaseWithdrawn):
                self.owners.withdrawn(back.request)
        yield from self._missed(now)
        lost, late = self.kernels.due(now)
        for kernel_id in lost:
            yield Feed(KernelEnded(kernel_id))
        for kernel, wish in late:
            yield self.routers.ask(kernel, wish)
        if self.jobs is not None:
            yield from self.jobs.due(now)
        if self.gangs is not None:
            yield from self.gangs.due(now)
        self._due = self._exactly()

    def _by(self, at: float) -> None:
        self._due = min(self._due, at)

    def _exactly(self) -> float:
        jobs = inf if self.jobs is None else self.jobs.deadline()
        gangs = inf if self.gangs is None else self.gangs.deadline()
        return min(self.hosts.deadline(), self.kernels.deadline(), jobs, gangs)
