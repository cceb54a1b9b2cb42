"""Who gets GPUs on several hosts at once: all of them, or none.

The core leases each host to a request of its own, so its lines, claims, quotas and accounts hold for gangs
as well. Laws: the asker hears of no lease before it has all, and loses all with the first that ends. Nobody
else has GPUs on which its processes may be: those end first, and have END_S for that. Only the first gang
that waits gathers, so no two wait for each other; another one is served where all of it is there at once.
What was gathered stays its own meanwhile, and counts as used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from replkernel_scheduler.effects import EndReason
from replkernel_scheduler.events import Event, LeaseAsked, LeaseReleased, LeaseRenewed, LeaseWithdrawn
from replkernel_scheduler.gangs.types import (
    GangAsked,
    GangEnds,
    GangGranted,
    GangId,
    GangLeased,
    GangLeaseEnded,
    GangLeft,
    GangOver,
    GangRecord,
    GangsEffect,
    GangSpec,
    GangWaits,
)
from replkernel_scheduler.types import HostName, KernelId, Lease, LeaseRequest, RequestId, UserName

LEASE_S = 86_400.0
END_S = 20.0
"""What its processes may be on is kept so long: they find a lost cell within 5 s, and have 5 s to end."""
GANGS_MAX = 1_000
HOSTS_MAX = 64
"""The most hosts of one gang."""
PASSERS_MAX = 16
"""So many of those behind the first are looked at when GPUs come free."""
GANGS_REQUEST = "gang."
"""All requests of gangs begin so, and the kernels that they name; nobody else's may."""


def is_of_gang(request: str) -> bool:
    """Tell whether a request, or the kernel that it names, is a gang's."""
    return request.startswith(GANGS_REQUEST)


class GangLeasing(Protocol):
    """What the desk knows of who leases."""

    def feed(self, event: Event, now: float) -> None:
        """Hand an event to the core; what follows has happened when this returns."""
        ...

    def known(self) -> list[HostName]:
        """Return the hosts that are there, out of sight or not."""
        ...

    def gpus_of(self, host: HostName, wish: LeaseRequest) -> int:
        """Return the most GPUs that a host could lease to such a request, with nothing else on it."""
        ...

    def idle_for(self, host: HostName, wish: LeaseRequest) -> bool:
        """Say whether a host has all of a request idle, and nobody who waits has a claim there."""
        ...

    def gpu_quota(self, user: UserName) -> int | None:
        """Return how many GPUs a user may have at once; None: as many as there are."""
        ...

    def over_quota(self, wish: LeaseRequest, now: float) -> str:
        """Say which quota of its user a request would break, with all that he has and waits for."""
        ...

    def keeps(self) -> bool:
        """Say whether what lingers is never asked back."""
        ...


class Gangs:
    """Decides about all gangs; `tell` takes the effects."""

    def __init__(self, leasing: GangLeasing, tell: Callable[[GangsEffect], None]) -> None:
        """Start with no gangs."""
        self.by_id: dict[GangId, GangRecord] = {}
        self.renew_at: dict[GangId, float] = {}
        """When the leases of each that has some are renewed, the first one first."""
        self.unsettled = False
        """Whether something has happened that `settle` has to see."""
        self._leasing, self._tell = leasing, tell
        self._of_request: dict[RequestId, GangRecord] = {}
        self._giving = False

    # -- what is said of gangs --------------------------------------------------------------------------

    def asked(self, event: GangAsked, now: float) -> None:
        """Take a gang in, refuse it, or say again how it stands."""
        spec = event.spec
        known = self.by_id.get(spec.gang)
        if known is not None:
            self._tell_again(known)
            return
        why = self._problem(spec) or self._over_quota(spec, now)
        if why:
            self._tell(GangOver(spec.gang, why, refused=True))
            return
        self.by_id[spec.gang] = GangRecord(spec=spec)
        self.unsettled = True

    def left(self, event: GangLeft, now: float) -> None:
        """Give back what a gang has, later where it may compute; one that nobody knows is over already."""
        gang = self.by_id.get(event.gang)
        if gang is None:
            return
        unsure = [lease for lease in gang.leases.values() if gang.granted and lease.host in event.unsure]
        if unsure:
            self._ends(gang, tuple(sorted(lease.host for lease in unsure)), "", now)
            self._release([lease for lease in gang.leases.values() if lease not in unsure], now)
        else:
            self._over(gang, "", now)
        self.unsettled = True

    # -- what the core says -----------------------------------------------------------------------------

    def granted(self, lease: Lease) -> bool:
        """Take note of a lease, new or renewed; say whether it is a gang's."""
        gang = self._of_request.get(lease.request)
        if gang is None:
            return False
        if lease.lease not in gang.leases:
            gang.request = None
            self.renew_at.setdefault(gang.spec.gang, lease.expires_at - LEASE_S / 2)
            self._tell(GangLeased(gang.spec.gang, lease))
            self.unsettled = True
        gang.leases[lease.lease] = lease
        return True

    def queued(self, request: RequestId, estimate_s: float | None) -> bool:
        """Take note of how long a request is thought to wait; say whether it is a gang's."""
        gang = self._of_request.get(request)
        if gang is not None:
            gang.estimate_s = estimate_s
            self.unsettled = True
        return gang is not None

    def refused(self, request: RequestId, why: str) -> bool:
        """Refuse the gang whose request was; say whether it is one's."""
        gang = self._of_request.pop(request, None)
        if gang is None:
            return False
        gang.request, gang.broken = None, why
        self.unsettled = True
        return True

    def lease_ended(self, lease: Lease, why: EndReason) -> bool:
        """Take note that a lease is over; say whether it was a gang's."""
        gang = self._of_request.pop(lease.request, None)
        if gang is None:
            self.unsettled = self.unsettled or bool(self.by_id)
            return False
        del gang.leases[lease.lease]
        if not gang.leases:
            self.renew_at.pop(gang.spec.gang, None)
        self._tell(GangLeaseEnded(gang.spec.gang, lease, why))
        if not self._giving:
            if gang.granted and gang.ends_at is None:
                gang.broken = (
                    f"The lease on host {lease.host} is over ({why}), so those on the others are, too."
                )
            self.unsettled = True
        return True

    def something_came_free(self) -> None:
        """Look again: hosts came, or those who waited do not any more."""
        self.unsettled = self.unsettled or bool(self.by_id)

    # -- decisions --------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """See to all that has happened: what is broken ends, who can be served is."""
        self.unsettled = False
        for gang in [gang for gang in self.by_id.values() if gang.broken and gang.ends_at is None]:
            if gang.granted:
                self._ends(gang, tuple([lease.host for lease in in_order(gang)]), gang.broken, now)
                continue
            able = len(self._able(gang.spec)) >= gang.spec.hosts
            self._over(gang, gang.broken if able else self._impossible(gang.spec), now, refused=True)
        for gang in [gang for gang in self.by_id.values() if gang.ends_at is not None and not gang.leases]:
            self._over(gang, "", now)
        waiting = [gang for gang in self.by_id.values() if not gang.granted]
        while waiting:
            first = waiting.pop(0)
            self._gather(first, now)
            if first.spec.gang in self.by_id and not first.granted:
                break  # Nobody behind it gathers.
        for gang in waiting[:PASSERS_MAX]:
            self._serve_at_once(gang, now)
        place = 0
        for gang in self.by_id.values():
            if not gang.granted:
                place += 1
                self._tell_place(gang, place)

    def kernel_of(self, kernel_id: KernelId) -> KernelId | None:
        """Return whose cell asked for the leases of this name; None: it names no gang's."""
        gang = (
            self.by_id.get(GangId(kernel_id.removeprefix(GANGS_REQUEST))) if is_of_gang(kernel_id) else None
        )
        return None if gang is None else gang.spec.kernel_id

    def due_at(self) -> float | None:
        """Return when `due` wants to be called."""
        ends = [gang.ends_at for gang in self.by_id.values() if gang.ends_at is not None]
        return min([*ends, *list(self.renew_at.values())[:1]], default=None)

    def due(self, now: float) -> None:
        """Renew leases: who speaks for a gang says when it is over. End what had its time to end."""
        for gang in list(self.by_id.values()):
            if gang.ends_at is not None and gang.ends_at <= now:
                self._over(gang, "", now)
        for name in [name for name, at in self.renew_at.items() if at <= now]:
            del self.renew_at[name]
            self.renew_at[name] = now + LEASE_S / 2
            for lease in list(self.by_id[name].leases.values()):
                self._leasing.feed(LeaseRenewed(lease.lease, lease.fence), now)

    def restore(self, gangs: tuple[GangRecord, ...], renew_at: tuple[tuple[GangId, float], ...]) -> None:
        """Go on from what `image` has returned."""
        for gang in gangs:
            self.by_id[gang.spec.gang] = apart(gang)
        self.renew_at.update(renew_at)
        for gang in self.by_id.values():
            for lease in gang.leases.values():
                self._of_request[lease.request] = gang
            if gang.request is not None:
                self._of_request[gang.request] = gang

    def image(self) -> tuple[tuple[GangRecord, ...], tuple[tuple[GangId, float], ...]]:
        """Return all that is to be kept."""
        return tuple([apart(gang) for gang in self.by_id.values()]), tuple(self.renew_at.items())

    def _gather(self, gang: GangRecord, now: float) -> None:
        """Ask for the hosts that a gang lacks, one after the other; it waits where one cannot be had now."""
        spec = gang.spec
        begins = gang.request is None and not gang.leases
        if begins and (why := self._over_quota(spec, now)):
            self._over(gang, why, now, refused=True)
            return
        if gang.request is not None and len(self._able(spec)) < spec.hosts:
            self._over(gang, self._impossible(spec), now, refused=True)
            return
        if self.idle_beside(gang):
            self._withdraw(gang, now)
        while gang.request is None and len(gang.leases) < spec.hosts:
            has = {lease.host for lease in gang.leases.values()}
            able = [host for host in self._able(spec) if host not in has]
            if len(able) < spec.hosts - len(has):
                self._over(gang, self._impossible(spec), now, refused=True)
                return
            if not self._ask(gang, tuple(able), now):
                return
        if len(gang.leases) == spec.hosts:
            self._complete(gang)

    def idle_beside(self, gang: GangRecord) -> bool:
        """Say whether a gang waits, and could have a host at once that came after it had asked."""
        if gang.request is None:
            return False
        wish, has = self._wish(gang, ()), {lease.host for lease in gang.leases.values()}
        return any(self._leasing.idle_for(host, wish) for host in self._able(gang.spec) if host not in has)

    def _serve_at_once(self, gang: GangRecord, now: float) -> None:
        """Serve a gang behind the first if all of it is idle, and nobody who waits has a claim there."""
        spec, wish = gang.spec, self._wish(gang, ())
        idle = [host for host in self._able(spec) if self._leasing.idle_for(host, wish)][: spec.hosts]
        if len(idle) < spec.hosts:
            return
        if why := self._over_quota(spec, now):
            self._over(gang, why, now, refused=True)
            return
        before = self.unsettled
        for host in idle:
            if not self._ask(gang, (host,), now):
                return
            if gang.request is not None:
                self._give_back(gang, now)
                self.unsettled = before
                return
        self._complete(gang)

    def _ask(self, gang: GangRecord, hosts: tuple[HostName, ...], now: float) -> bool:
        """Ask for one of these hosts; say whether that was not refused, by which the gang is over."""
        gang.asked += 1
        gang.estimate_s = None
        wish = self._wish(gang, hosts)
        gang.request = wish.request
        self._of_request[wish.request] = gang
        self._leasing.feed(LeaseAsked(wish), now)
        if gang.broken:
            self._over(gang, gang.broken, now, refused=True)
            return False
        return True

    def _complete(self, gang: GangRecord) -> None:
        gang.granted, gang.estimate_s = True, None
        self._tell(GangGranted(gang.spec.gang, in_order(gang)))

    def _ends(self, gang: GangRecord, hosts: tuple[HostName, ...], why: str, now: float) -> None:
        """Have the processes on these hosts ended; what they compute on is nobody else's meanwhile."""
        gang.ends_at = now + END_S if gang.ends_at is None else gang.ends_at
        self.renew_at.pop(gang.spec.gang, None)
        self._tell(GangEnds(gang.spec.gang, hosts, why))

    def _over(self, gang: GangRecord, why: str, now: float, *, refused: bool = False) -> None:
        self._give_back(gang, now)
        del self.by_id[gang.spec.gang]
        self.renew_at.pop(gang.spec.gang, None)
        self._tell(GangOver(gang.spec.gang, why, refused))
        self.unsettled = bool(self.by_id)

    def _give_back(self, gang: GangRecord, now: float) -> None:
        """Have a gang hold nothing and wait for nothing."""
        self._withdraw(gang, now)
        self._release(list(gang.leases.values()), now)

    def _withdraw(self, gang: GangRecord, now: float) -> None:
        """Have a gang wait for nothing."""
        self._giving = True
        if gang.request is not None:
            request, gang.request = gang.request, None
            self._leasing.feed(LeaseWithdrawn(request), now)
            self._of_request.pop(request, None)
        self._giving = False

    def _release(self, leases: list[Lease], now: float) -> None:
        self._giving = True
        for lease in leases:
            self._leasing.feed(LeaseReleased(lease.lease, lease.fence), now)
        self._giving = False

    # -- what can be had, and what is said ----------------------------------------------------------------

    def _wish(self, gang: GangRecord, hosts: tuple[HostName, ...]) -> LeaseRequest:
        """Return what is asked of one host."""
        spec = gang.spec
        request = RequestId(f"{GANGS_REQUEST}{spec.gang}.{gang.asked}")
        return LeaseRequest(
            request,
            KernelId(f"{GANGS_REQUEST}{spec.gang}"),
            spec.gpus,
            LEASE_S,
            hosts,
            spec.user,
            spec.gpu_model,
            spec.vram_gb,
            spec.cpu,
            spec.memory_gb,
        )

    def _able(self, spec: GangSpec) -> list[HostName]:
        """Return the hosts that could serve a gang, with nothing else on them."""
        wish = self._wish(GangRecord(spec=spec), ())
        among = spec.among or tuple(self._leasing.known())
        return [host for host in among if self._leasing.gpus_of(host, wish) >= spec.gpus]

    def _problem(self, spec: GangSpec) -> str:
        """Say why a gang will never be served; nothing if it may."""
        total = spec.gpus * spec.hosts
        if not 2 <= spec.hosts <= HOSTS_MAX or spec.gpus < 1:
            return f"A cell runs on 2 to {HOSTS_MAX} hosts with a GPU at least on each, not on {spec.hosts}."
        if len(self.by_id) >= GANGS_MAX:
            return f"{GANGS_MAX} cells on several hosts are there already; try again later."
        if self._leasing.keeps():
            return "Kernels keep their GPUs under this scheduler's policies: ask for GPUs of one host."
        quota = self._leasing.gpu_quota(spec.user)
        if quota is not None and total > quota:
            whose = spec.user or "this user"
            return f"The gpu_quota of {whose} is {quota} GPUs at once, and this asks for {total}."
        return "" if len(self._able(spec)) >= spec.hosts else self._impossible(spec)

    def _over_quota(self, spec: GangSpec, now: float) -> str:
        """Say which quota all of a gang would break; no host is asked before that is known."""
        wish = self._wish(GangRecord(spec=spec), ())
        return self._leasing.over_quota(msgspec.structs.replace(wish, gpus=spec.gpus * spec.hosts), now)

    def _impossible(self, spec: GangSpec) -> str:
        """Say that there are not so many hosts, and what the largest possible request is."""
        wish = self._wish(GangRecord(spec=spec), ())
        among = spec.among or tuple(self._leasing.known())
        sizes = sorted([self._leasing.gpus_of(host, wish) for host in among], reverse=True)
        sizes = [size for size in sizes if size]
        what = _gpus(spec.gpus, spec.gpu_model) + (f" of {spec.vram_gb:g} GiB" if spec.vram_gb else "")
        if len(sizes) >= spec.hosts:
            most = f"{spec.hosts} hosts have {_gpus(sizes[spec.hosts - 1])} each at most"
        elif len(sizes) > 1:
            most = f"{len(sizes)} hosts could serve this user, with {_gpus(sizes[-1])} each at most"
        else:
            most = f"{'one host' if sizes else 'no host'} could serve this user"
        return f"No {_number(spec.hosts)} hosts have {what} each: {most}."

    def _tell_place(self, gang: GangRecord, place: int) -> None:
        said = (place, len(gang.leases), gang.estimate_s)
        if gang.told != said:
            gang.told = said
            self._tell(GangWaits(gang.spec.gang, *said))

    def _tell_again(self, gang: GangRecord) -> None:
        if gang.ends_at is not None:
            self._tell(GangEnds(gang.spec.gang, tuple([lease.host for lease in in_order(gang)]), gang.broken))
        elif gang.granted:
            self._tell(GangGranted(gang.spec.gang, in_order(gang)))
        elif gang.told is not None:
            self._tell(GangWaits(gang.spec.gang, *gang.told))


def in_order(gang: GangRecord) -> tuple[Lease, ...]:
    """Return a gang's leases by their hosts' names: the first one's host has rank 0."""
    return tuple(sorted(gang.leases.values(), key=lambda lease: lease.host))


def apart(gang: GangRecord) -> GangRecord:
    """Return a gang that changes no more when the first one does."""
    return msgspec.structs.replace(gang, leases=dict(gang.leases))


def _gpus(count: int, model: str = "") -> str:
    return f"{count} {model + ' ' if model else ''}GPU{'' if count == 1 else 's'}"


def _number(count: int) -> str:
    words = ("two", "three", "four", "five", "six", "seven", "eight")
    return words[count - 2] if count - 2 < len(words) else str(count)
