"""Whose leases and requests they are, and which of them a kernel has, kept from what was decided.

Law: pure; what nobody told of has no owner. It forgets what is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from replkernel_scheduler.effects import LeaseChanged, LeaseEnded, LeaseGranted, LeaseRefused
from replkernel_scheduler.gangs.types import GangLeased, GangLeaseEnded
from replkernel_scheduler.harvest.asking import is_of_job
from replkernel_scheduler.harvest.types import HarvestEffect, JobLeased, JobLeaseEnded
from replkernel_scheduler.types import HostName, KernelId, Lease, LeaseId, RequestId, UserName
from replkernel_scheduler.view import ClusterView

Name = TypeVar("Name", RequestId, LeaseId)


class Owner(NamedTuple):
    """A kernel and its user."""

    kernel_id: KernelId
    user: UserName


class Owners:
    """Owners by lease and by request."""

    def __init__(self, view: ClusterView) -> None:
        """Begin with what is in force."""
        self.leases: dict[LeaseId, Owner] = {}
        self.requests: dict[RequestId, Owner] = {}
        self.of_kernel: dict[KernelId, dict[LeaseId, Lease]] = {}
        self.wishes_of: dict[KernelId, set[RequestId]] = {}
        self._waiting: dict[UserName, set[RequestId]] = {}
        self._held: dict[UserName, set[LeaseId]] = {}
        for entry in view.leases:
            if entry.phase != "reserved":
                self._has(entry.lease)
        for waiting in view.waiting:
            self.asks(waiting.request.request, waiting.request.kernel_id, waiting.request.user)

    def waiting_of(self, user: UserName) -> int:
        """Return how many requests of a user wait."""
        return len(self._waiting.get(user, ()))

    def held_by(self, user: UserName) -> int:
        """Return how many leases a user holds."""
        return len(self._held.get(user, ()))

    def in_use(self, host: HostName) -> bool:
        """Say whether a lease is in force on a host."""
        return any(lease.host == host for leases in self.of_kernel.values() for lease in leases.values())

    def asks(self, request: RequestId, kernel_id: KernelId, user: UserName) -> bool:
        """Note whose request it is; say whether it is not somebody else's already."""
        owner = Owner(kernel_id, user)
        if self.requests.setdefault(request, owner) != owner:
            return False
        self.wishes_of.setdefault(kernel_id, set()).add(request)
        self._waiting.setdefault(user, set()).add(request)
        return True

    def withdrawn(self, request: RequestId) -> None:
        """Forget a request that waits no more."""
        self._waits_no_more(request)
        self.requests.pop(request, None)

    def told(self, effects: Iterable[HarvestEffect]) -> None:
        """Take note of what was decided."""
        for effect in effects:
            match effect:
                case LeaseGranted(lease) | LeaseChanged(lease) | JobLeased(_, lease) | GangLeased(_, lease):
                    self._has(lease)
                case LeaseEnded(lease) | JobLeaseEnded(_, lease) | GangLeaseEnded(_, lease):
                    self.leases.pop(lease.lease, None)
                    _take_out(self._held, lease.user, lease.lease)
                    of_kernel = self.of_kernel.get(lease.kernel_id, {})
                    of_kernel.pop(lease.lease, None)
                    if not of_kernel:
                        self.of_kernel.pop(lease.kernel_id, None)
                    if lease.request not in self.wishes_of.get(lease.kernel_id, ()):  # else it is asked anew
                        self.requests.pop(lease.request, None)
                case LeaseRefused(request):
                    self.withdrawn(request)

    def _waits_no_more(self, request: RequestId) -> None:
        owner = self.requests.get(request)
        waiting = self.wishes_of.get(owner.kernel_id) if owner is not None else None
        if owner is not None and waiting is not None:
            waiting.discard(request)
            if not waiting:
                del self.wishes_of[owner.kernel_id]
        if owner is not None:
            _take_out(self._waiting, owner.user, request)

    def _has(self, lease: Lease) -> None:
        self._waits_no_more(lease.request)
        owner = Owner(lease.kernel_id, lease.user)
        self.leases[lease.lease] = owner
        self.requests[lease.request] = owner
        if not is_of_job(lease.request):  # What nobody needs is not bounded.
            self._held.setdefault(lease.user, set()).add(lease.lease)
        self.of_kernel.setdefault(lease.kernel_id, {})[lease.lease] = lease


def _take_out(of_user: dict[UserName, set[Name]], user: UserName, name: Name) -> None:
    names = of_user.get(user)
    if names is not None:
        names.discard(name)
        if not names:
            del of_user[user]
