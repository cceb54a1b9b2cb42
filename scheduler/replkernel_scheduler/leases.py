"""The leases in force, by id, by request and by kernel.

Law: a lease is in its host's table as long as it is here; of_request holds the leases that serve a request
(active or bound), resting those whose cell is over but whose state lies on the GPUs.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from replkernel_scheduler.cards import Card
from replkernel_scheduler.hosts import Hosts, Pool
from replkernel_scheduler.types import (
    Fence,
    GpuUuid,
    KernelId,
    Lease,
    LeaseId,
    LeasePhase,
    LeaseRequest,
    RequestId,
)

MILLI = 1000


class LeaseRecord:
    """One lease with what only the scheduler needs to know of it."""

    __slots__ = (
        "again_at",
        "asked_at",
        "card",
        "cpu_milli",
        "estimate",
        "granted_at",
        "held_gb",
        "home",
        "host",
        "kept",
        "lease",
        "memory_milli",
        "paid",
        "pausing",
        "phase",
        "pool",
        "rate",
        "rated_at",
        "rested_at",
        "told",
        "wanted_at",
        "warm",
        "wish",
    )

    def __init__(
        self, lease: Lease, pool: Pool, wish: LeaseRequest, phase: LeasePhase, card: Card | None = None
    ) -> None:
        """Keep what is given; the times are set by who grants. `card` is that of a share."""
        self.card = card
        self.lease, self.pool, self.host, self.wish = lease, pool, pool.host, wish
        self.phase: LeasePhase = phase
        self.cpu_milli = round(wish.cpu * MILLI) if wish.cpu else 0
        self.memory_milli = round(wish.memory_gb * MILLI) if wish.memory_gb else 0
        """What its cell has of the host's cores and memory, while it runs."""
        self.asked_at = self.granted_at = self.estimate = 0.0
        self.rested_at = self.wanted_at = self.held_gb = 0.0
        self.home: LeaseId | None = None
        self.rate = 0
        """What its user is charged while a cell uses it, since `rated_at`; `paid` is what it cost before."""
        self.paid = self.rated_at = 0.0
        self.warm = False
        self.pausing: RequestId | None = None
        """For whom its cell is being paused."""
        self.told = False
        """Whether its cell was ever told to stand still, and may ask to go on."""
        self.again_at = 0.0
        """Before that its cell is not told to stand still; 0 where it has not refused to."""
        self.kept = False
        """Whether its kernel's state cannot leave its GPUs; told anew with each renewal."""

    def expect(self) -> None:
        """Note when its holder thinks to be done, if that is known; a share's end frees no whole GPU."""
        if self.wish.expected_s and self.lease.gpus and self.card is None:
            insort(self.pool.ends, self._end())

    def forget(self) -> None:
        """Expect no end any more."""
        if self.wish.expected_s and self.lease.gpus and self.card is None:
            ends, end = self.pool.ends, self._end()
            del ends[bisect_left(ends, end)]

    def _end(self) -> tuple[float, int, int]:
        return (self.granted_at + self.wish.expected_s, self.lease.fence, len(self.lease.gpus))


class Leases:
    """All leases in force."""

    def __init__(self, hosts: Hosts, fence: Fence) -> None:
        """Start with none; every fence will be above `fence`."""
        self.by_id: dict[LeaseId, LeaseRecord] = {}
        self.of_request: dict[RequestId, LeaseRecord] = {}
        self.resting: dict[KernelId, dict[LeaseId, LeaseRecord]] = {}
        self.fence = fence
        self._hosts = hosts

    def next_fence(self) -> Fence:
        """Return a fence that nobody had."""
        self.fence = Fence(self.fence + 1)
        return self.fence

    def open(self, record: LeaseRecord) -> None:
        """Put a new lease in force; its GPUs have been taken from the pool."""
        lease, card = record.lease, record.card
        if card is not None:
            card.records[lease.lease] = record
            self._hosts.shifted(card)
        self.by_id[lease.lease] = record
        record.host.leases[lease.lease] = record
        record.host.cpu_free -= record.cpu_milli
        record.host.memory_free -= record.memory_milli
        if record.phase == "reserved":
            self.resting.setdefault(lease.kernel_id, {})[lease.lease] = record
        else:
            self.of_request[lease.request] = record
            record.expect()

    def rest(self, record: LeaseRecord) -> None:
        """Let an active lease linger."""
        self._leave_request(record)
        record.forget()
        _uncommit(record)
        record.phase = "lingering"
        self.resting.setdefault(record.lease.kernel_id, {})[record.lease.lease] = record
        if record.card is not None:
            self._hosts.shifted(record.card)
            return
        record.pool.lingering += len(record.lease.gpus)
        self._hosts.moved(record.pool)

    def reclaim(self, record: LeaseRecord) -> None:
        """Let a lingering lease be wanted back."""
        record.phase = "reclaiming"
        if record.card is not None:
            self._hosts.shifted(record.card)
            return
        record.pool.lingering -= len(record.lease.gpus)
        record.pool.reclaiming += len(record.lease.gpus)
        self._hosts.moved(record.pool)

    def cut(self, record: LeaseRecord, gpus: tuple[GpuUuid, ...]) -> None:
        """Take GPUs out of a resting lease; they are idle then. One without GPUs is over."""
        if record.card is not None:
            self._forget(record)
            return
        left = tuple([uuid for uuid in record.lease.gpus if uuid not in gpus])
        if record.phase == "lingering":
            record.pool.lingering -= len(gpus)
        elif record.phase == "reclaiming":
            record.pool.reclaiming -= len(gpus)
        self._hosts.give(record.pool, gpus)
        if left or record.phase == "reserved":
            record.lease = with_gpus(record.lease, left)
        else:
            self._forget(record)

    def close(self, record: LeaseRecord) -> None:
        """Take a lease out of force; its GPUs are idle then."""
        count = len(record.lease.gpus) if record.card is None else 0
        if record.phase == "lingering":
            record.pool.lingering -= count
        elif record.phase == "reclaiming":
            record.pool.reclaiming -= count
        elif record.phase != "reserved":
            self._leave_request(record)
            record.forget()
            _uncommit(record)
        else:
            _uncommit(record)
        if record.card is None:
            self._hosts.give(record.pool, record.lease.gpus)
        self._forget(record)

    def _forget(self, record: LeaseRecord) -> None:
        lease, card = record.lease, record.card
        if card is not None:
            del card.records[lease.lease]
            self._hosts.shifted(card)
        del self.by_id[lease.lease]
        del record.host.leases[lease.lease]
        resting = self.resting.get(lease.kernel_id)
        if resting is not None and resting.pop(lease.lease, None) is not None and not resting:
            del self.resting[lease.kernel_id]

    def _leave_request(self, record: LeaseRecord) -> None:
        if self.of_request.get(record.lease.request) is record:
            del self.of_request[record.lease.request]


def _uncommit(record: LeaseRecord) -> None:
    record.host.cpu_free += record.cpu_milli
    record.host.memory_free += record.memory_milli


def with_gpus(lease: Lease, gpus: tuple[GpuUuid, ...]) -> Lease:
    """Return the lease on other GPUs."""
    return Lease(
        lease.lease,
        lease.request,
        lease.kernel_id,
        lease.host,
        gpus,
        lease.fence,
        lease.ttl_s,
        lease.expires_at,
        lease.user,
        lease.price,
        lease.share,
    )


def until(lease: Lease, expires_at: float) -> Lease:
    """Return the lease with another end."""
    return Lease(
        lease.lease,
        lease.request,
        lease.kernel_id,
        lease.host,
        lease.gpus,
        lease.fence,
        lease.ttl_s,
        expires_at,
        lease.user,
        lease.price,
        lease.share,
    )
