"""The scheduler's decisions: which request gets which GPUs, in what order, and when a lease ends.

Pure: the same events at the same times give the same effects. It sleeps never and reads no clock.
Laws: a GPU is in at most one lease; fences only grow; requests are served strictly first come, first
served (a small request never overtakes a large one, so none starves); a request that no known host
could ever serve is refused instead of blocking those behind it.
"""

from __future__ import annotations

from collections import OrderedDict

from replkernel_scheduler.effects import (
    Effect,
    EndReason,
    HostRefused,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    LeaseUnknown,
)
from replkernel_scheduler.events import (
    Event,
    HostDown,
    HostUp,
    LeaseAsked,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    TimeReached,
)
from replkernel_scheduler.types import Fence, GpuUuid, Host, HostName, Lease, LeaseId, LeaseRequest, RequestId

HOSTS_MAX = 4096
GPUS_PER_HOST_MAX = 64
QUEUE_MAX = 10_000
TTL_S_MAX = 7 * 86_400.0
NO_FENCE = Fence(0)


class InvariantBroken(AssertionError):
    """The core is in a state that its laws exclude: a bug, never an outcome."""


class SchedulerCore:
    """Hosts, leases and the queue of lease requests."""

    def __init__(self, fence: Fence = NO_FENCE) -> None:
        """Start empty; every lease will carry a fence above `fence`."""
        self._hosts: dict[HostName, Host] = {}
        self._leases: dict[LeaseId, Lease] = {}
        self._lease_of: dict[RequestId, LeaseId] = {}
        self._holder: dict[GpuUuid, LeaseId] = {}
        self._queue: OrderedDict[RequestId, LeaseRequest] = OrderedDict()
        self._fence = fence
        self._now = float("-inf")

    # -- reading ----------------------------------------------------------------------------------

    def hosts(self) -> list[Host]:
        """Return the hosts that are up, by name."""
        return sorted(self._hosts.values(), key=lambda host: host.name)

    def leases(self) -> list[Lease]:
        """Return the leases in force, oldest first."""
        return sorted(self._leases.values(), key=lambda lease: lease.fence)

    def queued(self) -> list[LeaseRequest]:
        """Return the requests that wait, next one first."""
        return list(self._queue.values())

    def lease_for(self, request: RequestId) -> Lease | None:
        """Return the lease that serves `request`, if one is in force."""
        lease = self._lease_of.get(request)
        return None if lease is None else self._leases[lease]

    def idle_gpus(self, host: HostName) -> list[GpuUuid]:
        """Return the GPUs of `host` that are in no lease, in the host's order."""
        return [gpu for gpu in self._hosts[host].gpus if gpu not in self._holder]

    def deadline(self) -> float | None:
        """Return when `handle(TimeReached(), …)` is due: the first expiry."""
        return min((lease.expires_at for lease in self._leases.values()), default=None)

    # -- the one entry ----------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event that happened at `now` and return what follows from it."""
        if now < self._now:
            raise ValueError(f"The clock went back from {self._now} to {now}.")
        self._now = now
        effects = self._expire(now)
        match event:
            case HostUp():
                effects += self._host_up(event)
            case HostDown():
                effects += self._host_down(event)
            case LeaseAsked():
                return effects + self._serve(now) + self._ask(event.request, now)
            case LeaseWithdrawn():
                self._queue.pop(event.request, None)
            case LeaseRenewed():
                effects += self._renew(event, now)
            case LeaseReleased():
                effects += self._release(event)
            case TimeReached():
                pass
        return effects + self._serve(now)

    def check_invariants(self) -> None:
        """Raise InvariantBroken if a law of this file does not hold."""
        held = [gpu for lease in self._leases.values() for gpu in lease.gpus]
        self._require(len(held) == len(set(held)), "a GPU is in two leases")
        self._require(set(held) == set(self._holder), "the holders disagree with the leases")
        for lease in self._leases.values():
            host = self._hosts.get(lease.host)
            self._require(
                host is not None and set(lease.gpus) <= set(host.gpus), "a lease lies on no such GPU"
            )
            self._require(0 < lease.fence <= self._fence, "a fence was not given here")
            self._require(self._lease_of.get(lease.request) == lease.lease, "a request lost its lease")
        fences = [lease.fence for lease in self._leases.values()]
        self._require(len(fences) == len(set(fences)), "two leases share a fence")
        self._require(len(self._lease_of) == len(self._leases), "a request points at no lease")
        self._require(not set(self._queue) & set(self._lease_of), "a served request still waits")
        self._require(len(self._queue) <= QUEUE_MAX, "the queue is over its limit")
        offered = [gpu for host in self._hosts.values() for gpu in host.gpus]
        self._require(len(offered) == len(set(offered)), "two hosts offer one GPU")
        head = next(iter(self._queue.values()), None)
        self._require(head is None or self._best_host(head) is None, "the next request waits for nothing")
        self._require(all(self._possible(wish) for wish in self._queue.values()), "a hopeless request waits")

    @staticmethod
    def _require(holds: bool, law: str) -> None:
        if not holds:
            raise InvariantBroken(law)

    # -- hosts ------------------------------------------------------------------------------------

    def _host_up(self, event: HostUp) -> list[Effect]:
        why = self._host_problem(event)
        if why is not None:
            return [HostRefused(event.host, why)]
        self._hosts[event.host] = Host(event.host, event.gpus)
        offered = set(event.gpus)
        gone = [
            lease for lease in self.leases() if lease.host == event.host and not set(lease.gpus) <= offered
        ]
        return [self._end(lease, "gpu gone") for lease in gone] + self._drop_hopeless()

    def _host_problem(self, event: HostUp) -> str | None:
        if len(event.gpus) > GPUS_PER_HOST_MAX:
            return f"Host {event.host} offers {len(event.gpus)} GPUs; at most {GPUS_PER_HOST_MAX} are taken."
        if len(set(event.gpus)) != len(event.gpus):
            return f"Host {event.host} offers one GPU twice; each UUID may be listed once."
        if event.host not in self._hosts and len(self._hosts) >= HOSTS_MAX:
            return f"{HOSTS_MAX} hosts are up already; take one down first."
        for other in self._hosts.values():
            shared = set(other.gpus) & set(event.gpus)
            if other.name != event.host and shared:
                return f"GPU {min(shared)} is offered by host {other.name}; take that host down first."
        return None

    def _host_down(self, event: HostDown) -> list[Effect]:
        if event.host not in self._hosts:
            return []
        lost = [lease for lease in self.leases() if lease.host == event.host]
        ended: list[Effect] = [self._end(lease, "host down") for lease in lost]
        del self._hosts[event.host]
        return ended + self._drop_hopeless()

    def _drop_hopeless(self) -> list[Effect]:
        hopeless = [wish for wish in self._queue.values() if not self._possible(wish)]
        for wish in hopeless:
            del self._queue[wish.request]
        return [LeaseRefused(wish.request, self._impossible(wish)) for wish in hopeless]

    # -- leases -----------------------------------------------------------------------------------

    def _ask(self, wish: LeaseRequest, now: float) -> list[Effect]:
        held = self.lease_for(wish.request)
        if held is not None:
            return [LeaseGranted(held)]
        if wish.request in self._queue:
            return [LeaseQueued(wish.request, list(self._queue).index(wish.request) + 1)]
        why = self._wish_problem(wish)
        if why is not None:
            return [LeaseRefused(wish.request, why)]
        self._queue[wish.request] = wish
        granted = self._serve(now)
        if granted:
            return granted
        return [LeaseQueued(wish.request, len(self._queue))]

    def _wish_problem(self, wish: LeaseRequest) -> str | None:
        if not 1 <= wish.gpus <= GPUS_PER_HOST_MAX:
            return f"A lease is for 1 to {GPUS_PER_HOST_MAX} GPUs, not {wish.gpus}."
        if not 0 < wish.ttl_s <= TTL_S_MAX:
            return f"A lease lasts up to {TTL_S_MAX:.0f} seconds, not {wish.ttl_s:g}."
        if len(self._queue) >= QUEUE_MAX:
            return f"{QUEUE_MAX} requests wait already; try again later."
        return None if self._possible(wish) else self._impossible(wish)

    def _possible(self, wish: LeaseRequest) -> bool:
        return any(
            self._eligible(host, wish) and len(host.gpus) >= wish.gpus for host in self._hosts.values()
        )

    def _impossible(self, wish: LeaseRequest) -> str:
        where = f"of {', '.join(sorted(wish.hosts))} " if wish.hosts else ""
        most = max((len(host.gpus) for host in self._hosts.values() if self._eligible(host, wish)), default=0)
        return f"No host {where}has {wish.gpus} GPUs (the most is {most}); ask for fewer or add a host."

    @staticmethod
    def _eligible(host: Host, wish: LeaseRequest) -> bool:
        return not wish.hosts or host.name in wish.hosts

    def _best_host(self, wish: LeaseRequest) -> HostName | None:
        """Return the eligible host with the most idle GPUs (by name among equals), if it has enough."""
        ranked = [
            (-len(self.idle_gpus(host.name)), host.name)
            for host in self._hosts.values()
            if self._eligible(host, wish)
        ]
        if not ranked or -min(ranked)[0] < wish.gpus:
            return None
        return min(ranked)[1]

    def _serve(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._queue:
            wish = next(iter(self._queue.values()))
            host = self._best_host(wish)
            if host is None:
                break
            del self._queue[wish.request]
            effects.append(LeaseGranted(self._grant(wish, host, now)))
        return effects

    def _grant(self, wish: LeaseRequest, host: HostName, now: float) -> Lease:
        self._fence = Fence(self._fence + 1)
        lease = Lease(
            lease=LeaseId(f"lease-{self._fence}"),
            request=wish.request,
            kernel_id=wish.kernel_id,
            host=host,
            gpus=tuple(self.idle_gpus(host)[: wish.gpus]),
            fence=self._fence,
            ttl_s=wish.ttl_s,
            expires_at=now + wish.ttl_s,
        )
        self._keep(lease)
        return lease

    def _keep(self, lease: Lease) -> None:
        self._leases[lease.lease] = lease
        self._lease_of[lease.request] = lease.lease
        self._holder.update(dict.fromkeys(lease.gpus, lease.lease))

    def _end(self, lease: Lease, why: EndReason) -> LeaseEnded:
        del self._leases[lease.lease]
        del self._lease_of[lease.request]
        for gpu in lease.gpus:
            del self._holder[gpu]
        return LeaseEnded(lease, why)

    def _renew(self, event: LeaseRenewed, now: float) -> list[Effect]:
        lease = self._leases.get(event.lease)
        if lease is None or lease.fence != event.fence:
            return [self._unknown(event)]
        renewed = Lease(
            lease=lease.lease,
            request=lease.request,
            kernel_id=lease.kernel_id,
            host=lease.host,
            gpus=lease.gpus,
            fence=lease.fence,
            ttl_s=lease.ttl_s,
            expires_at=now + lease.ttl_s,
        )
        self._keep(renewed)
        return [LeaseGranted(renewed)]

    def _release(self, event: LeaseReleased) -> list[Effect]:
        lease = self._leases.get(event.lease)
        if lease is None or lease.fence != event.fence:
            return [self._unknown(event)]
        return [self._end(lease, "released")]

    @staticmethod
    def _unknown(event: LeaseRenewed | LeaseReleased) -> LeaseUnknown:
        why = f"No lease {event.lease} with fence {event.fence} is in force; ask for a new one."
        return LeaseUnknown(event.lease, why)

    def _expire(self, now: float) -> list[Effect]:
        over = [lease for lease in self.leases() if lease.expires_at <= now]
        return [self._end(lease, "expired") for lease in over]
