"""The leases in force, by id, by request and by kernel.

Law: a lease is in its host's table as long as it is here; of_request holds the leases that serve a request
(active or bound), resting those whose cell is over but whose state lies on the GPUs.
"""

from __future__ import annotations

from replkernel_scheduler.host_index import Hosts
from replkernel_scheduler.hosts import LeaseRecord
from replkernel_scheduler.types import (
    Fence,
    GpuUuid,
    KernelId,
    Lease,
    LeaseId,
    RequestId,
)


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
