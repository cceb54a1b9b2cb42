"""Hosts that agents speak for: what they offer, how busy their GPUs are, and since when nobody was heard.

A host may have several agents (one of each user on a shared machine) as long as they offer the same GPUs. It
is up while one of them is heard, out of sight LOST_S after the last word or when its agent ends with leases
in force, and gone when it stays so. Where an agent cannot read its GPUs, the host keeps those that it has
offered before. Law: pure; nobody replaces what another user's agent offers, but for admins; only who offered
a host speaks for it; what was not seen empty is not empty. How busy GPUs are is never journalled.
"""

from __future__ import annotations

from math import inf

import msgspec
from msgspec import UNSET
from replkernel_scheduler.events import HostAway, HostDown, HostUp
from replkernel_scheduler.types import Gpu, GpuUuid, HostName, Lease, UserName
from replkernel_scheduler.view import ClusterView

from replkernel.leasing.models import model_name
from replkernel.leasing.wire import (
    BEAT_S,
    GPUS_OF_HOST_MAX,
    KERNELS_OF_GPU_MAX,
    GpuUse,
    HostOffer,
    OfferedGpu,
)
from replkernel_server.scheduling.identity import Identity

LOST_S = 3 * BEAT_S
CONTEXT_GB = 1.1
"""CUDA's own context may take so much where nothing of a notebook's lies."""
LAST_LOOK_S = 0.5
"""Before a silent host is taken down, what it has said meanwhile is read: it may be us who were held up."""
AGAIN_S = 10.0
"""An offer that was refused is tried again after this, for as long as its agent beats."""


class WatchedHost:
    """One host; `user` None is nobody yet, after a restart."""

    __slots__ = (
        "agents", "away_until", "gpus", "heard_at", "offer", "silent_at", "use", "use_at", "user", "users",
    )  # fmt: skip

    def __init__(self, heard_at: float) -> None:
        """Start without agents."""
        self.agents: set[int] = set()
        self.heard_at = heard_at
        self.silent_at: float | None = None
        self.away_until: float | None = None
        self.offer: HostOffer | None = None
        self.gpus: tuple[OfferedGpu, ...] = ()
        """What it has offered last, also before a restart."""
        self.user: str | None = None
        self.users: set[UserName] = set()
        """Whose agents have offered just that."""
        self.use: dict[str, GpuUse] = {}
        self.use_at: dict[str, float] = {}


class HostDesk:
    """All hosts with agents, and the names of those without."""

    def __init__(self, view: ClusterView, now: float, grace_s: float, away_s: float = 0.0) -> None:
        """Give hosts that were heard before a restart `grace_s` to be heard again, and `away_s` then."""
        self._away_s = away_s
        self.watched: dict[HostName, WatchedHost] = {}
        self.fixed: set[HostName] = set()
        self._offers: dict[int, HostOffer] = {}
        self._whose: dict[int, UserName] = {}
        self._again_at: dict[int, float] = {}
        for host in view.hosts:
            if host.watched:
                known = self.watched[host.name] = WatchedHost(now + grace_s - LOST_S)
                known.gpus = tuple([OfferedGpu(gpu.uuid, gpu.model, gpu.memory_gb) for gpu in host.gpus])
                if host.state == "down":
                    known.away_until = now + max(grace_s, away_s)
            else:
                self.fixed.add(host.name)

    def is_up(self, name: HostName) -> bool:
        """Say whether the core was told that a host is up."""
        host = self.watched.get(name)
        return name in self.fixed or (host is not None and host.away_until is None)

    def _heard(self, host: WatchedHost, now: float) -> None:
        host.heard_at, host.silent_at, host.away_until = max(host.heard_at, now), None, None

    def offers(
        self, client: int, name: HostName, who: Identity, offer: HostOffer, now: float
    ) -> HostUp | str:
        """Take an agent's offer: return the event, or why it is refused."""
        host = self.watched.get(name)
        if name in self.fixed and not who.admin:
            return f"Host {name} was registered by an administrator: name this agent's host otherwise."
        others = host is not None and host.user not in (None, who.user) and not who.admin
        if offer.unread:
            if others and host is not None and who.user not in host.users:
                return (
                    f"Host {name} is offered by another user's agent, and the GPUs' driver does not answer "
                    "this one: it is taken once it does."
                )
            offer = msgspec.structs.replace(
                offer, gpus=_beside(offer.gpus, () if host is None else host.gpus), unread=False
            )
        offered = msgspec.structs.replace(offer, guarded=False)
        if others and host is not None and host.offer != offered:
            return (
                f"Host {name} is offered by another user's agent, with other GPUs: name this agent's host "
                "otherwise, or offer the same GPUs."
            )
        if host is None:
            self.fixed.discard(name)
            host = self.watched[name] = WatchedHost(now)
        host.agents.add(client)
        self._heard(host, now)
        if host.offer != offered:
            host.offer, host.user, host.use, host.use_at = offered, who.user, {}, {}
            host.users.clear()
        host.users.add(who.user)
        host.gpus = offered.gpus
        self._offers[client], self._whose[client] = offer, who.user
        return _up(name, offer)

    def up(self, name: HostName) -> HostUp | None:
        """Return what a host that is up offers."""
        host = self.watched.get(name)
        if host is None or host.offer is None or not host.agents or host.away_until is not None:
            return None
        return _up(name, host.offer)

    def is_of(self, name: HostName, who: Identity) -> bool:
        """Say whether a host is up by the offer of this user."""
        host = self.watched.get(name)
        return host is not None and host.user == who.user

    def is_offered_by(self, user: UserName, name: HostName) -> bool:
        """Say whether an agent of this user is among those that offer a host."""
        host = self.watched.get(name)
        return host is not None and any(self._whose.get(agent) == user for agent in host.agents)

    def beats(self, client: int, name: HostName, use: tuple[GpuUse, ...], now: float) -> bool:
        """Note that a host was heard; say whether it is up, and by an offer of this client."""
        host = self.watched.get(name)
        if host is None or client not in host.agents or host.away_until is not None:
            return False
        self._heard(host, now)
        known = {gpu.uuid for gpu in host.offer.gpus} if host.offer is not None else set()
        host.use.update({gpu.uuid: gpu for gpu in use if gpu.uuid in known})
        host.use_at.update({gpu.uuid: now for gpu in use if gpu.uuid in known})
        return True

    def replaces(self, name: HostName, who: Identity, offer: HostOffer) -> list[HostDown]:
        """Take down hosts that are out of sight and had some of these GPUs: their agent has a new name."""
        uuids = {gpu.uuid for gpu in offer.gpus}
        old = [
            other
            for other, host in self.watched.items()
            if other != name
            and host.away_until is not None
            and host.offer is not None
            and (who.admin or host.user == who.user)
            and any(gpu.uuid in uuids for gpu in host.offer.gpus)
        ]
        return [self._down(other) for other in old]

    def is_empty(self, lease: Lease, since: float) -> bool:
        """Say whether a lease's GPUs were seen empty since then; those that nobody tells of count so."""
        host = self.watched.get(lease.host)
        if host is None:
            return True
        for gpu in lease.gpus:
            use = host.use.get(gpu)
            if use is None:
                continue
            if host.use_at[gpu] <= since:
                return False
            if lease.share is not UNSET and len(use.kernels) < KERNELS_OF_GPU_MAX:
                if lease.kernel_id in use.kernels or _nobodys(use):
                    return False  # What else is there is others'.
            elif use.kernels or use.memory_used_gb > CONTEXT_GB:
                return False
        return True

    def to_offer_again(self, client: int, now: float) -> HostOffer | None:
        """Return what an agent offered last, if it is time to try that again."""
        return self._offers.get(client) if self._again_at.get(client, now) <= now else None

    def refused(self, client: int, name: HostName, now: float) -> HostDown | None:
        """Take note that the core did not take an offer; a host of which only that was told is down."""
        self._again_at[client] = now + AGAIN_S
        host = self.watched.get(name)
        if host is None:
            return None
        host.agents.discard(client)
        return None if host.agents else self._down(name)

    def left(self, client: int, name: HostName) -> None:
        """Note that an agent's connection is over; it may come back."""
        self._offers.pop(client, None)
        self._whose.pop(client, None)
        self._again_at.pop(client, None)
        host = self.watched.get(name)
        if host is not None:
            host.agents.discard(client)

    def leaves(self, client: int, name: HostName, now: float, *, in_use: bool) -> HostDown | HostAway | None:
        """Take the host down if the agent that ends offered it, as the last one that does.

        One that is `in_use` is only out of sight: an agent that is started anew goes on with what runs there.
        """
        host = self.watched.get(name)
        offered = host is not None and client in host.agents
        self.left(client, name)
        if host is None or not offered or host.agents:
            return None
        return self._away(name, host, now) if in_use and self._away_s else self._down(name)

    def due(self, now: float) -> list[HostDown | HostAway]:
        """Return who is out of sight now, not heard at a last look either, and who is gone."""
        events: list[HostDown | HostAway] = []
        for name, host in list(self.watched.items()):
            if host.away_until is not None:
                if host.away_until <= now:
                    events.append(self._down(name))
            elif host.silent_at is not None and host.silent_at + LAST_LOOK_S <= now:
                events.append(self._away(name, host, now) if self._away_s else self._down(name))
            elif host.silent_at is None and host.heard_at + LOST_S <= now:
                host.silent_at = now
        return events

    def deadline(self) -> float:
        """Return when the first host will have been silent for too long, or is to be looked at again."""
        return min((_look_at(host) for host in self.watched.values()), default=inf)

    def use_of(self, name: HostName) -> dict[str, GpuUse]:
        """Return how busy a host's GPUs are, as far as it was told."""
        host = self.watched.get(name)
        return {} if host is None else host.use

    def forget(self, name: HostName) -> None:
        """Forget a host that was taken down; its agents offer it again with their next beat."""
        self.watched.pop(name, None)
        self.fixed.discard(name)

    def _away(self, name: HostName, host: WatchedHost, now: float) -> HostAway:
        host.agents.clear()
        host.away_until = now + self._away_s
        return HostAway(name)

    def _down(self, name: HostName) -> HostDown:
        del self.watched[name]
        return HostDown(name)


def _up(name: HostName, offer: HostOffer) -> HostUp:
    gpus = tuple(Gpu(GpuUuid(gpu.uuid), model_name(gpu.model), gpu.memory_gb) for gpu in offer.gpus)
    return HostUp(name, gpus, offer.cpu, offer.memory_gb, watched=True)


def _beside(read: tuple[OfferedGpu, ...], known: tuple[OfferedGpu, ...]) -> tuple[OfferedGpu, ...]:
    """Return the GPUs known, in their order, then what else was read; the last known give way if too many."""
    here = {gpu.uuid: gpu for gpu in read}
    unread = [gpu.uuid for gpu in known if gpu.uuid not in here]
    dropped = set(unread[GPUS_OF_HOST_MAX - len(here) :])
    return tuple(({gpu.uuid: gpu for gpu in known if gpu.uuid not in dropped} | here).values())


def _nobodys(use: GpuUse) -> bool:
    """Say whether memory is in use that no kernel is named for: it may be anybody's."""
    return not use.kernels and use.memory_used_gb > CONTEXT_GB


def _look_at(host: WatchedHost) -> float:
    if host.away_until is not None:
        return host.away_until
    return host.heard_at + LOST_S if host.silent_at is None else host.silent_at + LAST_LOOK_S
