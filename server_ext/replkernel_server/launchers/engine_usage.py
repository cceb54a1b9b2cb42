"""GPUs that an engine's other jobs use: the scheduler sees each as leased to those jobs.

Pure: counts in, the core's events out. Law: one lease a GPU, on that host alone, before anybody who waits;
it is given back when the engine counts one less, and no notebook ever holds or loses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, LeaseRefused
from replkernel_scheduler.events import (
    Event,
    LeaseAsked,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    QuotaSet,
)
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import (
    HostName,
    KernelId,
    Lease,
    LeaseRequest,
    RequestId,
    UserName,
    UserQuota,
)

USER: Final = UserName("(jobs of the engine)")
TTL_S = 86_400.0
RENEW_S = TTL_S / 3
PRIORITY = 1_000_000
COUNT_MAX = 64


class EngineUsage:
    """Jobs of the engine, by host."""

    def __init__(self, leases: Iterable[Lease] = (), waiting: Iterable[LeaseRequest] = ()) -> None:
        """Begin with what a recovered core has in force."""
        self._numbers = 0
        self._known = False
        self._leases: dict[RequestId, Lease] = {}
        self._asked: dict[HostName, list[RequestId]] = {}
        self._renewed_at: float | None = None
        for lease in (lease for lease in leases if lease.user == USER):
            self._leases[lease.request] = lease
            self._begins(lease.host, lease.request)
        for wish in (wish for wish in waiting if wish.user == USER and wish.hosts):
            self._begins(wish.hosts[0], wish.request)

    def count(self, host: HostName) -> int:
        """Return how many GPUs of a host are thought to be used."""
        return len(self._asked.get(host, ()))

    def counted(self, host: HostName, count: int) -> list[Event]:
        """Have as many leases as GPUs are used."""
        events: list[Event] = []
        if not self._known:
            self._known = True
            events.append(QuotaSet(USER, UserQuota(priority=PRIORITY)))
        asked = self._asked.setdefault(host, [])
        while len(asked) < min(count, COUNT_MAX):
            self._numbers += 1
            request = RequestId(f"engine {host} {self._numbers}")
            asked.append(request)
            wish = LeaseRequest(
                request, KernelId(f"jobs on {host}"), 1, TTL_S, (host,), USER, holder="engine"
            )
            events.append(LeaseAsked(wish))
        while len(asked) > count:
            events.append(self._back(asked.pop()))
        return events

    def decided(self, effects: Iterable[HarvestEffect]) -> None:
        """Take note of what was decided."""
        for effect in effects:
            match effect:
                case LeaseGranted(lease) if lease.user == USER:
                    self._leases[lease.request] = lease
                case LeaseEnded(lease) if lease.user == USER:
                    self._over(lease.request)
                case LeaseRefused(request) if request.startswith("engine "):
                    self._over(request)

    def due(self, now: float) -> list[Event]:
        """Renew what is held, some times a day."""
        if self._renewed_at is not None and now < self._renewed_at + RENEW_S:
            return []
        self._renewed_at = now
        return [LeaseRenewed(lease.lease, lease.fence) for lease in self._leases.values()]

    def _back(self, request: RequestId) -> Event:
        lease = self._leases.get(request)
        if lease is None:
            return LeaseWithdrawn(request)
        return LeaseReleased(lease.lease, lease.fence)

    def _over(self, request: RequestId) -> None:
        lease = self._leases.pop(request, None)
        for host in [lease.host] if lease is not None else list(self._asked):
            if request in self._asked.get(host, ()):
                self._asked[host].remove(request)

    def _begins(self, host: HostName, request: RequestId) -> None:
        self._known = True
        self._asked.setdefault(host, []).append(request)
        number = request.rpartition(" ")[2]
        self._numbers = max(self._numbers, int(number) if number.isdecimal() else 0)
