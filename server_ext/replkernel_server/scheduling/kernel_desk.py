"""Kernels whose routers speak: where they are, what they hold and wish, and since when they are away.

Law: pure; a kernel belongs to the user whose router came first, and a router touches what is its kernel's
alone. A wish whose kernel has no host that is up is kept for HOST_WAIT_S: agents and routers start together.
A lease or a wish from before a router came back, of which it says nothing within UNTOLD_S, was given back or
taken back by a word that got lost. What a router that does not return has is over: its wishes and the grants
that nobody heard after a moment, what lingers once its GPUs are seen empty, all where its processes ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf

import msgspec
from msgspec import UNSET
from replkernel_scheduler.events import (
    Event,
    HolderGone,
    KernelReported,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    PauseFailed,
)
from replkernel_scheduler.types import (
    Fence,
    HostName,
    KernelId,
    KernelSpec,
    Lease,
    LeaseId,
    LeaseRequest,
    Paused,
    RequestId,
    Share,
    UserName,
)
from replkernel_scheduler.view import ClusterView

from replkernel.leasing.models import model_name
from replkernel.leasing.wire import (
    KernelHere,
    LeaseBack,
    LeaseKept,
    LeaseLingers,
    LeaseWish,
    PauseRefused,
)

HOST_WAIT_S = 10.0
UNTOLD_S = 5.0
BUSY_S_MAX = 1e9
MULTIPLICITY = 4
"""The parts of those who share a GPU come to so many GPUs at most (spec 4.4: interactive jobs)."""
HELD_MAX = 64
"""A kernel has no more wishes kept for a host that is on its way."""


class RoutedKernel:
    """One kernel; while its router is away (`client` None) it is given up at `lost_at`.

    `known`: the core has been told of it. `before`: its leases when its router connected, until that tells
    which it holds; `untold`: those that it has not spoken of yet, and until when it may. `wished` and
    `unsaid` are the same for its wishes. From `gone_at` on its router is not expected back; `unheard` are
    leases that were granted while it was away, `gone` those of which the core knows that, `ended_on` the
    hosts on which its processes have ended.
    """

    __slots__ = (
        "before",
        "client",
        "ended_on",
        "gone",
        "gone_at",
        "held",
        "here",
        "idles",
        "kernel_id",
        "known",
        "left_at",
        "looked",
        "lost_at",
        "pauses",
        "unheard",
        "unsaid",
        "untold",
        "user",
        "wished",
    )

    def __init__(
        self, kernel_id: KernelId, user: UserName, lost_at: float = inf, *, known: bool = False
    ) -> None:
        """Start without a router."""
        self.kernel_id, self.user, self.lost_at, self.known = kernel_id, user, lost_at, known
        self.client: int | None = None
        self.pauses = False
        """Whether its router knows how to pause a cell."""
        self.idles = False
        """Whether it knows how to tell one that it leaves its GPUs idle."""
        self.here: KernelHere | None = None
        self.held: dict[RequestId, tuple[LeaseWish, float]] = {}
        self.before: dict[LeaseId, Lease] = {}
        self.untold: dict[LeaseId, tuple[Lease, float]] = {}
        self.wished: frozenset[RequestId] = frozenset()
        self.unsaid: dict[RequestId, float] = {}
        self.left_at = self.gone_at = inf
        self.looked = False
        self.unheard: set[LeaseId] = set()
        self.gone: set[LeaseId] = set()
        self.ended_on: set[HostName] = set()

    def joined(
        self, client: int | None, leases: Mapping[LeaseId, Lease], wishes: Iterable[RequestId]
    ) -> None:
        """Note who speaks for it from now on, and what it has by then."""
        self.client, self.before, self.untold = client, dict(leases), {}
        self.wished, self.unsaid = frozenset((*wishes, *self.held)), {}
        self.left_at = self.gone_at = inf
        self.looked = False
        self.unheard, self.gone = set(), set()

    def tells(self, leases: Collection[str], until: float) -> None:
        """Note which leases the router holds: of the others, and of wishes, it may speak until `until`."""
        for name, lease in self.before.items():
            if name not in leases:
                self.untold[name] = (lease, until)
        self.unsaid.update(dict.fromkeys(self.wished, until))
        self.before, self.wished = {}, frozenset()

    def speaks_of(self, *, lease: str = "", request: str = "") -> None:
        """Note that the router knows a lease, or says again what it wishes."""
        self.unsaid.pop(RequestId(request), None)
        for name in [
            name for name, (held, _) in self.untold.items() if lease == name or request == held.request
        ]:
            del self.untold[name]

    def without_holder(
        self, leases: Iterable[Lease], now: float, empty: Callable[[Lease, float], bool]
    ) -> list[HolderGone]:
        """Return the events of leases that nobody speaks for; `empty` says whether GPUs are seen so since."""
        found = []
        for lease in leases if self.client is None else ():
            missed = now >= self.gone_at
            ended = lease.host in self.ended_on or (missed and lease.lease in self.unheard)
            rests = missed and lease.lease not in self.gone and empty(lease, self.left_at)
            if ended or rests:
                self.gone.add(lease.lease)
                found.append(HolderGone(lease.lease, lease.fence, ended))
        return found

    def report(self) -> KernelReported:
        """Return what the core is told of it."""
        here = self.here or KernelHere(())
        spec = KernelSpec(
            self.kernel_id,
            self.user,
            here.gpus,
            max(1, len(here.hosts)),
            model_name(here.gpu_model),
            here.vram_gb,
            here.cpu,
            here.memory_gb,
        )
        executor = HostName(here.executor) if here.executor in here.hosts else None
        return KernelReported(spec, tuple(HostName(host) for host in here.hosts), here.moves, executor)

    def ask(
        self, wish: LeaseWish, ttl_s: float, sharing: int = MULTIPLICITY, *, pauses: bool = False
    ) -> LeaseAsked:
        """Return the event of a wish; the parts of those who share a GPU come to `sharing` at most.

        `pauses`: its cell may be paused for a shorter one.
        """
        request = LeaseRequest(
            RequestId(wish.request),
            self.kernel_id,
            wish.gpus,
            ttl_s,
            tuple(HostName(host) for host in wish.hosts),
            self.user,
            model_name(wish.gpu_model),
            wish.vram_gb,
            wish.cpu,
            wish.memory_gb,
            wish.expected_s,
            preemptible=True if pauses and not wish.part else UNSET,
            paused=UNSET if wish.paused is None else Paused(wish.paused.ran_s, wish.paused.paused_s),
        )
        if wish.part:
            share = Share(round(wish.part * 1000), sharing if wish.shared else 1)
            request = msgspec.structs.replace(request, share=share)
        return LeaseAsked(request)

    def hosts_for(self, wish: LeaseWish) -> tuple[HostName, ...]:
        """Return the hosts that may serve a wish."""
        hosts = wish.hosts or (self.here.hosts if self.here is not None else ())
        return tuple(HostName(host) for host in hosts)


class KernelDesk:
    """All kernels that routers told of."""

    def __init__(self, view: ClusterView, now: float, away_s: float, return_s: float = inf) -> None:
        """Give the routers of kernels that were there before a restart `away_s` to come back.

        After `return_s` what they hold unseen is over.
        """
        self.kernels: dict[KernelId, RoutedKernel] = {
            kernel.kernel_id: RoutedKernel(kernel.kernel_id, kernel.user, now + away_s, known=True)
            for kernel in view.kernels
        }
        self._unseen: dict[KernelId, RoutedKernel] = {}
        for kernel in self.kernels.values():
            kernel.left_at, kernel.gone_at = now, now + return_s

    def joins(
        self,
        client: int,
        kernel_id: KernelId,
        user: UserName,
        leases: Mapping[LeaseId, Lease],
        wishes: Iterable[RequestId] = (),
    ) -> tuple[RoutedKernel, int | None] | None:
        """Let a router speak for its kernel, which has `leases` now, and `wishes` that wait.

        Return the kernel and whom it replaces, None if it is another user's.
        """
        kernel = self.kernels.get(kernel_id)
        if kernel is None:
            kernel = self.kernels[kernel_id] = RoutedKernel(kernel_id, user)
        if kernel.user != user:
            return None
        self._unseen.pop(kernel_id, None)
        before, kernel.lost_at = kernel.client, inf
        kernel.joined(client, leases, wishes)
        return kernel, before

    def awaits(self, kernel_id: KernelId, user: UserName, lost_at: float) -> None:
        """Note that a kernel is placed, or waits for that: its router is expected until `lost_at`."""
        kernel = self.kernels.get(kernel_id)
        if kernel is None:
            kernel = self.kernels[kernel_id] = RoutedKernel(kernel_id, user)
        if kernel.client is None:
            kernel.known, kernel.lost_at = True, lost_at

    def unclaimed_by(self, user: UserName) -> int:
        """Return how many kernels of a user are known to the core, and have no router."""
        kernels = self.kernels.values()
        return sum(kernel.known and kernel.client is None and kernel.user == user for kernel in kernels)

    def is_here(self, kernel_id: KernelId) -> bool:
        """Say whether a kernel's router is connected."""
        kernel = self.kernels.get(kernel_id)
        return kernel is not None and kernel.client is not None

    def notebook_of(self, kernel_id: KernelId) -> str:
        """Return the path of a kernel's notebook as its router tells it; it is written nowhere."""
        kernel = self.kernels.get(kernel_id)
        return "" if kernel is None or kernel.here is None else kernel.here.notebook

    def left(
        self, client: int, kernel_id: KernelId, now: float, gone_at: float, lost_at: float
    ) -> RoutedKernel | None:
        """Note that a router's connection is over; return its kernel, if that was the one that spoke for it.

        It may come back until `lost_at`, and is expected to until `gone_at`.
        """
        kernel = self.kernels.get(kernel_id)
        if kernel is None or kernel.client != client:
            return None
        kernel.joined(None, {}, ())
        kernel.left_at, kernel.gone_at, kernel.lost_at = now, gone_at, lost_at
        if not kernel.known:
            del self.kernels[kernel_id]
        return kernel

    def missed(self, now: float) -> list[RoutedKernel]:
        """Return the kernels whose routers are not expected back any more, each once."""
        found = [kernel for kernel in self.kernels.values() if kernel.gone_at <= now and not kernel.looked]
        for kernel in found:
            kernel.looked = True
            self._unseen[kernel.kernel_id] = kernel
        return found

    def unseen(self) -> list[RoutedKernel]:
        """Return the kernels whose routers are away, and were looked for in vain."""
        return list(self._unseen.values())

    def due(self, now: float) -> tuple[list[KernelId], list[tuple[RoutedKernel, LeaseWish]]]:
        """Return the kernels that are given up, and the wishes that are not kept any longer."""
        lost = [kernel_id for kernel_id, kernel in self.kernels.items() if kernel.lost_at <= now]
        for kernel_id in lost:
            del self.kernels[kernel_id]
            self._unseen.pop(kernel_id, None)
        late = [
            (kernel, wish)
            for kernel in self.kernels.values()
            for wish, until in list(kernel.held.values())
            if until <= now
        ]
        for kernel, wish in late:
            del kernel.held[RequestId(wish.request)]
        return lost, late

    def lost_words(self, now: float) -> list[LeaseReleased | LeaseWithdrawn]:
        """Return the events of leases and wishes that were given or taken back by words which got lost."""
        late = [
            (kernel, lease)
            for kernel in self.kernels.values()
            for lease, until in list(kernel.untold.values())
            if until <= now
        ]
        for kernel, lease in late:
            del kernel.untold[lease.lease]
        over = [
            (kernel, request)
            for kernel in self.kernels.values()
            for request, until in list(kernel.unsaid.items())
            if until <= now
        ]
        for kernel, request in over:
            del kernel.unsaid[request]
            kernel.held.pop(request, None)
        given = [LeaseReleased(lease.lease, lease.fence) for _, lease in late]
        return [*(LeaseWithdrawn(request) for _, request in over), *given]

    def deadline(self) -> float:
        """Return when the first of them is due."""
        away = min((kernel.lost_at for kernel in self.kernels.values()), default=inf)
        held = [until for kernel in self.kernels.values() for _, until in kernel.held.values()]
        untold = [until for kernel in self.kernels.values() for _, until in kernel.untold.values()]
        unsaid = [until for kernel in self.kernels.values() for until in kernel.unsaid.values()]
        missed = min((kernel.gone_at for kernel in self.kernels.values() if not kernel.looked), default=inf)
        return min(away, missed, min(held, default=inf), min(untold, default=inf), min(unsaid, default=inf))


def of_lease(message: LeaseKept | LeaseLingers | LeaseBack | PauseRefused) -> Event:
    """Return the event of a router's word about a lease."""
    lease, fence = LeaseId(message.lease), Fence(message.fence)
    if isinstance(message, LeaseKept):
        return LeaseRenewed(lease, fence, message.stays, message.leaves)
    if isinstance(message, PauseRefused):
        return PauseFailed(lease, fence, message.why)
    known = message.busy_s is not None and 0.0 <= message.busy_s <= BUSY_S_MAX
    busy_s = message.busy_s if known else None
    if isinstance(message, LeaseLingers):
        return LeaseLingered(lease, fence, busy_s, message.held_gb)
    return LeaseReleased(lease, fence, busy_s)
