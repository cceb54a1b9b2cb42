"""Which hosts hold a kernel's replicas, and what happens while there are too few with room.

Laws: a kernel's replicas are on different hosts; a host takes a replica only below the subscription limit.
Where hosts can be provisioned, a new kernel waits until all of its replicas have one, and its share is kept
on those on their way; elsewhere it starts with what there is, and gets the rest when it comes. (Spec 1.2.)
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from replkernel_scheduler.choosing import suits
from replkernel_scheduler.effects import (
    KernelPending,
    KernelPlaced,
    ProvisionHost,
    ReleaseHost,
)
from replkernel_scheduler.hosts import MILLI, Host, LeaseRecord, Pool, least_gb
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.load_index import Load
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.policies.protocol import Subscription
from replkernel_scheduler.reservations import Reservation
from replkernel_scheduler.serving import Serving
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, Lease, LeaseId, LeaseRequest, RequestId

AGAIN_S = 5.0
FAILS_MAX = 8
FOREVER = float("inf")


class Placement(NamedTuple):
    """Where a kernel stands: on which hosts; how many it misses, and how many are on their way to it."""

    spec: KernelSpec
    hosts: tuple[HostName, ...]
    missing: int
    coming: int
    reported: bool


class Placing:
    """Hosts for replicas."""

    def __init__(self, parts: Parts, serving: Serving) -> None:
        """Decide about `parts`."""
        self.parts, self.serving = parts, serving

    def place(self, kernel: Kernel, avoid: Host | None = None) -> bool:
        """Give a kernel the replicas it misses, as many as may be, `avoid` last; say whether it has all."""
        parts, missing, spec = self.parts, kernel.missing, kernel.spec
        preferred = self.candidates(kernel) if spec.gpus else self._spread(kernel, spec.kernel_id)
        found = list(islice((pool for pool in preferred if pool.host is not avoid), missing))
        if avoid is not None and len(found) < missing:
            found += [pool for pool in self.candidates(kernel) if pool.host is avoid]
        if len(found) < missing:
            if parts.settings.host_shape is not None:
                self._reserve_hosts(kernel, missing - len(found))
                found = found if kernel.placed else []
            if not kernel.placed and not found and kernel.told != missing:
                kernel.told = missing
                parts.out.append(KernelPending(kernel.spec.kernel_id, missing))
        if found:
            for pool in found:
                self.settle(kernel, pool)
            kernel.placed = True
            names = tuple(pool.host.name for pool in found)
            parts.out.append(KernelPlaced(kernel.spec.kernel_id, names))
        parts.kernels.wants(kernel, missing - len(found))
        if found:
            self.rehost(kernel)
        if not kernel.missing:
            parts.reservations.forget(kernel.spec.kernel_id)
        elif parts.timers.at(("placing", "")) is None:
            parts.timers.set(("placing", ""), parts.now + AGAIN_S)
        return not kernel.missing

    def top_up(self) -> None:
        """Try again for the kernels that wait, in their order, until FAILS_MAX of them found nothing."""
        fails = 0
        for kernel in list(self.parts.kernels.short.values()):
            before = kernel.missing
            self.place(kernel)
            fails += kernel.missing == before
            if fails == FAILS_MAX:
                return

    def due(self) -> None:
        """Try again because the limit may have risen."""
        self.top_up()
        self.later()

    def later(self) -> None:
        """Try again soon for the kernels that wait."""
        if self.parts.kernels.short:
            self.parts.timers.set(("placing", ""), self.parts.now + AGAIN_S)

    def candidates(self, kernel: Kernel) -> Iterator[Pool]:
        """Return pools on different hosts that may take one more replica, as placement prefers them."""
        parts, spec = self.parts, kernel.spec
        gpus, model, vram_gb, reserve = spec.gpus, spec.gpu_model, least_gb(spec), parts.policies.reserve
        limit = self.limit(spec.replicas)

        def passes(load: Load) -> bool:
            if load.gpus < gpus or not suits(load, gpus, model, vram_gb):
                return False
            if reserve:
                return load.idle >= gpus
            return not gpus or within(load.subscribed + gpus, load.host_gpus, spec.replicas, limit)

        seen: set[HostName] = set()
        for pool in parts.hosts.find(passes):
            host = pool.host
            if (
                host.name not in seen
                and spec.kernel_id not in host.replicas
                and host.name not in spec.without
                and _has_room(host, spec, limit, reserve)
            ):
                seen.add(host.name)
                yield pool

    def suggest(self, kernel_id: KernelId, replicas: int) -> list[HostName]:
        """Return the hosts for a kernel that asks for nothing, the best first; nothing is placed."""
        anybody = Kernel(KernelSpec(KernelId(""), replicas=replicas))
        return [pool.host.name for pool in self._spread(anybody, kernel_id)]

    def _spread(self, kernel: Kernel, name: KernelId) -> list[Pool]:
        """Return pools for a kernel that subscribes to no GPUs, and so leaves no mark on a host's load.

        Those with GPUs come first, as placement likes them; among equals the one with the fewest replicas,
        then as chance has it for this kernel and host: kernels that begin at once are not to be together.
        """
        rank = self.parts.policies.placement.rank
        return sorted(
            self.candidates(kernel),
            key=lambda pool: (
                not pool.host.gpus,
                rank(pool.load()),
                len(pool.host.replicas),
                blake2b(f"{name} {pool.host.name}".encode()).digest(),
            ),
        )

    def standing(self, kernel_id: KernelId) -> Placement | None:
        """Return where a live kernel stands."""
        kernel = self.parts.kernels.by_id.get(kernel_id)
        if kernel is None:
            return None
        hosts = tuple(host.name for host in kernel.hosts)
        coming = sum(kernel_id in kind.shares for kind in self.parts.reservations.by_id.values())
        return Placement(kernel.spec, hosts, kernel.missing, coming, kernel.reported)

    def limit(self, replicas: int) -> float:
        """Return the present subscription limit."""
        parts = self.parts
        total = Subscription(parts.hosts.subscribed, parts.hosts.gpus, parts.demand)
        return parts.policies.limit.limit(total, replicas)

    def settle(self, kernel: Kernel, pool: Pool) -> None:
        """Put a replica on a host, with the GPUs for its whole life if the policies say so."""
        parts, spec = self.parts, kernel.spec
        parts.kernels.settle(kernel, pool.host)
        if not parts.policies.reserve or not spec.gpus:
            return
        taken = parts.hosts.take(pool, None, spec.gpus)
        fence = parts.leases.next_fence()
        name = LeaseId(f"lease-{fence}")
        request = RequestId(f"kernel {spec.kernel_id}")
        wish = LeaseRequest(request, spec.kernel_id, spec.gpus, FOREVER, (), spec.user)
        lease = Lease(
            name, request, spec.kernel_id, pool.host.name, taken, fence, FOREVER, FOREVER, spec.user
        )
        parts.leases.open(LeaseRecord(lease, pool, wish, "reserved"))
        self.serving.touch(pool.host)

    def rehost(self, kernel: Kernel) -> None:
        """Let the kernel's waiting requests stand where its replicas are now, and look from there."""
        self.parts.migrations.wake(kernel.spec.kernel_id)
        for request in self.parts.kernels.asks_of(kernel.spec.kernel_id):
            waiting = self.parts.queue.by_request.get(request)
            if waiting is not None and not waiting.wish.hosts:
                hosts = self.serving.choosing.hosts_for(waiting.wish, kernel)
                if hosts is not None:
                    self.serving.stand_at(waiting, hosts)

    def one_more_host(self) -> None:
        """Have a host provisioned for a migration without target, unless one is on its way already."""
        if not self.parts.reservations.by_id:
            self.provision()

    def provision(self) -> Reservation | None:
        """Have one more host provisioned, if the settings allow for it."""
        parts, shape = self.parts, self.parts.settings.host_shape
        if (
            shape is None
            or len(parts.hosts.by_name) + len(parts.reservations.by_id) >= parts.settings.hosts_max
        ):
            return None
        made = parts.reservations.open(shape, parts.now)
        parts.timers.set(("reservation", made.id), parts.now + parts.settings.boot_max_s)
        parts.out.append(ProvisionHost(made.id, shape))
        return made

    def emptied(self, host: Host) -> None:
        """Have a drained host released once it holds nothing."""
        full = host.replicas or host.leases or host.moves or self.parts.occupants(host.name)
        if host.state == "draining" and not full and not host.released:
            host.released = True
            self.parts.out.append(ReleaseHost(host.name))

    def undrain(self, host: Host) -> None:
        """Use a host again that could not be emptied."""
        if host.state == "draining" and self.parts.hosts.by_name.get(host.name) is host:
            self.use_again(host)

    def use_again(self, host: Host) -> None:
        """Let a host that was hidden be found, and claimed by those who wait for it."""
        host.state, host.released = "up", False
        self.parts.hosts.draining.discard(host.name)
        self.parts.hosts.index(host)
        for waiting in [waiting for _, waiting in host.line if waiting.claim is None]:
            self.serving.claim(waiting)
        self.serving.touch(host)

    def _reserve_hosts(self, kernel: Kernel, count: int) -> None:
        """Keep the kernel's share on `count` hosts on their way, and have provisioned what is missing."""
        parts, spec = self.parts, kernel.spec
        limit = self.limit(spec.replicas)
        kept = [kind for kind in parts.reservations.by_id.values() if spec.kernel_id in kind.shares]
        for kind in parts.reservations.by_id.values():
            if len(kept) >= count:
                break
            if kind not in kept and within(
                kind.subscribed + spec.gpus, kind.shape.gpus, spec.replicas, limit
            ):
                kept.append(kind)
        while len(kept) < count and (made := self.provision()) is not None:
            kept.append(made)
        for kind in kept:
            kind.shares[spec.kernel_id] = spec.gpus


def within(subscribed: float, total: float, replicas: int, limit: float) -> bool:
    """Say whether a host passes with so much subscribed: strictly below for several replicas (spec 1.3)."""
    return subscribed < limit * total * replicas if replicas > 1 else subscribed <= limit * total


def _has_room(host: Host, spec: KernelSpec, limit: float, reserve: bool) -> bool:
    cpu, memory = round(spec.cpu * MILLI), round(spec.memory_gb * MILLI)
    if cpu > host.cpu_milli or memory > host.memory_milli:
        return False
    if reserve:
        limit = 1.0
    return (not cpu or within(host.cpu_subscribed + cpu, host.cpu_milli, spec.replicas, limit)) and (
        not memory or within(host.memory_subscribed + memory, host.memory_milli, spec.replicas, limit)
    )
