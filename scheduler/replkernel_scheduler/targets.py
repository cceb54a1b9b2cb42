"""Which replica of a kernel goes, and where to: looked up for a migration, nothing is changed.

Law: a pinned replica, or one with a cell (be it paused), is not chosen. No host gets two of a kernel.
(Spec 1.5.)
"""

from __future__ import annotations

from itertools import islice

from msgspec import UNSET

from replkernel_scheduler.asking import Asking
from replkernel_scheduler.cards import Room
from replkernel_scheduler.choosing import Choosing, suits
from replkernel_scheduler.hosts import Host, LeaseRecord, Pool, Waiting, least_gb
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.load_index import Load, LoadClass
from replkernel_scheduler.migrations import Migration
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.placing import Placing, within
from replkernel_scheduler.types import HostName, LeaseRequest

CLAIMS_MAX = 16
"""So many at most are considered of the hosts that somebody claims."""
LOOKS_MAX = 16
"""So many hosts at most are considered for GPUs that merely linger."""


class Targets:
    """Looks for victims and targets."""

    def __init__(self, parts: Parts, choosing: Choosing, placing: Placing) -> None:
        """Look among the hosts of `parts`."""
        self.parts, self.choosing, self.placing = parts, choosing, placing
        self.asking = Asking(parts)

    def find(self, migration: Migration, kernel: Kernel) -> Pool | None:
        """Return where a replica can go; a host that has failed before comes last."""
        if migration.waiting is None:
            return next(self.placing.candidates(kernel), None)
        kernel_id = migration.kernel_id
        waiting = migration.waiting
        second: Pool | None = None
        for pool in self.choosing.idle_pools(waiting.wish, waiting.key, CLAIMS_MAX):
            if kernel_id not in pool.host.replicas and pool.host.could_serve(kernel.spec):
                if pool.host.name not in migration.tried:
                    return pool
                second = second or pool
        return second

    def soon(self, wish: LeaseRequest, kernel: Kernel) -> Pool | None:
        """Return a pool where the kernel is not, unclaimed, that has the GPUs once what lingers is back."""
        hosts, shares = self.parts.hosts, wish.share is not UNSET
        found = [
            entry
            for entry in hosts.loads()
            if (shares or entry.load.soft >= wish.gpus)
            and suits(entry.load, wish.gpus, wish.gpu_model, least_gb(wish))
        ]
        found.sort(key=_most_soft)
        names = (name for entry in found for name, _ in entry.names)
        for host in (hosts.named(name) for name in islice(names, LOOKS_MAX)):
            if host.claims or kernel.spec.kernel_id in host.replicas or not host.could_serve(kernel.spec):
                continue
            for pool in host.pools:
                if not pool.suits(wish):
                    continue
                if shares and self.without_resting(pool).take(wish):
                    return pool
                if not shares and len(pool.idle) + pool.lingering + self.coming(pool) >= wish.gpus:
                    return pool
        return None

    def without_resting(self, pool: Pool) -> Room:
        """Return what a pool would have left once all is back that lingers or is on its way back."""
        rest = [record for record in pool.host.leases.values() if record.phase in ("lingering", "reclaiming")]
        return Room(pool, {id(record) for record in rest}, [])

    def coming(self, pool: Pool) -> int:
        """Return how many GPUs are on their way back, by holders who have not had the usual time for that."""
        return pool.reclaiming and pool.reclaiming - self.asking.late(pool)

    def why_not(self, kernel: Kernel | None, host: Host | None, name: HostName) -> str:
        """Say why a kernel gets no replica on a host that its owner named."""
        if kernel is None or not kernel.hosts:
            return "the scheduler does not know where this kernel is; run a cell that asks for GPUs first"
        if not self.parts.policies.migration.enabled or (kernel.reported and not kernel.movable):
            return "this kernel's replicas stay where they are"
        if host is None or host.state != "up":
            return f"no host {name} is up"
        if host in kernel.hosts:
            return f"one is on {name} already"
        if kernel.spec.kernel_id in self.parts.migrations.by_kernel:
            return "another is on its way; try again when it is there"
        spec = kernel.spec
        limit = self.placing.limit(spec.replicas)
        if spec.gpus and not within(host.subscribed + spec.gpus, host.gpus, spec.replicas, limit):
            return f"{name} has as many kernels as its {host.gpus} GPUs are good for; choose another host"
        return ""

    def victim(self, kernel: Kernel) -> Host | None:
        """Return the host that loses its replica; None if all must stay."""
        hosts = self.leavable(kernel)
        if not hosts:
            return None
        if kernel.reported and len(hosts) > 1:  # Its process holds the state; the others would take it over.
            hosts = [host for host in hosts if host.name != kernel.last]
        name = self.parts.policies.migration.victim([host.name for host in hosts], self.parts.dice)
        return next(host for host in hosts if host.name == name)

    def leavable(self, kernel: Kernel) -> list[Host]:
        """Return the hosts whose replica may leave: not pinned, and no cell runs there."""
        busy = self.busy(kernel)
        return [host for host in kernel.hosts if host.name != kernel.pinned and host.name not in busy]

    def busy(self, kernel: Kernel) -> set[HostName]:
        """Return the hosts where the kernel's cells run, are about to, or stand still."""
        return {record.host.name for record in self.active(kernel)} | self.stand_still(kernel)

    def stand_still(self, kernel: Kernel) -> set[HostName]:
        """Return the hosts whose process holds a cell of the kernel that is paused."""
        last = set() if kernel.last is None else {kernel.last}
        by_request, name = self.parts.queue.by_request, kernel.spec.kernel_id
        for request in self.parts.kernels.asks_of(name):
            waiting = by_request.get(request)
            if waiting is not None and waiting.wish.paused is not UNSET:
                return set(waiting.wish.hosts) or last
        return last if name in self.parts.pauses.owed else set()

    def active(self, kernel: Kernel) -> list[LeaseRecord]:
        """Return the leases of the kernel's cells that run or are about to."""
        of_request = self.parts.leases.of_request
        asks = self.parts.kernels.asks_of(kernel.spec.kernel_id)
        return [of_request[request] for request in asks if request in of_request]


def may_move(parts: Parts, waiting: Waiting) -> bool:
    """Say whether the kernel of a request may be moved for it, and is not on the move already."""
    wish = waiting.wish
    if wish.hosts or not wish.gpus or waiting.hosts is None or not parts.policies.migration.enabled:
        return False
    kernel = parts.kernels.by_id.get(wish.kernel_id)
    if kernel is None or not kernel.hosts or (kernel.reported and not kernel.movable):
        return False
    return wish.kernel_id not in parts.migrations.by_kernel and not parts.policies.reserve


def counts_in_vain(parts: Parts, waiting: Waiting, takers: list[Waiting]) -> bool:
    """Say whether its claim will not serve a request soon, and no other host is or was looked for."""
    if waiting.migration is not None or waiting.gave_up or waiting.wish.paused is not UNSET:
        return False
    host = waiting.claim
    soon = host is not None and waiting in takers and host.has_room(waiting.wish)
    return not soon and may_move(parts, waiting)


def _most_soft(entry: LoadClass) -> tuple[int, Load]:
    return (-entry.load.soft, entry.load)
