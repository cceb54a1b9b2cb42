"""What each decision is called on the wire, and whose router hears it.

Law: pure; seconds on the wire are counted from now, a time of the core's never leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import UNSET
from replkernel_scheduler.effects import (
    LeaseChanged,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    PauseLease,
    ReclaimLease,
    StartReplica,
    StopReplica,
)
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import KernelId, Lease, MigrationId, RequestId

from replkernel.leasing.request import seconds_in_words
from replkernel.leasing.wire import (
    Denied,
    FromScheduler,
    Granted,
    GrantedLease,
    LeaseOver,
    LeasePause,
    LeaseShrank,
    LeaseWanted,
    MoveOver,
    MoveReplica,
    Waiting,
)
from replkernel.records import HostName
from replkernel_server.scheduling.owners import Owners

RANGE_S_MIN = 60.0
"""Of waits that are shorter no range is told."""
ToKernel: TypeAlias = tuple[KernelId, FromScheduler]


def messages(
    effect: HarvestEffect, now: float, owners: Owners, awaits: Callable[[RequestId], str] = lambda _: ""
) -> ToKernel | None:
    """Return the message of an effect and the kernel whose router it is for; None: nobody is told.

    `awaits` says what a request waits for.
    """
    match effect:
        case LeaseGranted(lease):
            return lease.kernel_id, Granted(granted_lease(lease, now))
        case LeaseChanged(lease):
            return lease.kernel_id, LeaseShrank(granted_lease(lease, now))
        case LeaseEnded(lease, why):
            return lease.kernel_id, LeaseOver(lease.lease, why)
        case ReclaimLease(lease, until):
            return lease.kernel_id, LeaseWanted(lease.lease, lease.fence, max(0.0, until - now))
        case PauseLease(lease, until, for_s, gpu_model):
            left_s = max(0.0, until - now)
            return lease.kernel_id, LeasePause(lease.lease, lease.fence, left_s, for_s, gpu_model)
        case LeaseQueued(request, position, estimate_s):
            return _asker(request, Waiting(request, position, estimate_s, awaits(request)), owners)
        case LeaseRefused(request, why):
            return _asker(request, Denied(request, why), owners)
        case StartReplica(migration, kernel_id, host, source, _, attempt):
            order = order_of(migration, attempt)
            return kernel_id, MoveReplica(order, HostName(host), HostName(source))
        case StopReplica(kernel_id, host):
            return kernel_id, MoveOver(HostName(host))
    return None


def order_of(migration: MigrationId, attempt: int) -> str:
    """Return what a router calls one try of a migration."""
    return f"{migration}/{attempt}"


def granted_lease(lease: Lease, now: float) -> GrantedLease:
    """Write a lease with the seconds that are left of it."""
    left_s = max(0.0, lease.expires_at - now)
    host, gpus = HostName(lease.host), tuple(str(gpu) for gpu in lease.gpus)
    price = (0.0, "") if lease.price is UNSET else (lease.price.hour, lease.price.currency)
    share = (0.0, 0.0) if lease.share is UNSET else (lease.share.milli / 1000, lease.share.vram_mib / 1024)
    shared = lease.share is not UNSET and lease.share.multiplicity > 1
    return GrantedLease(
        lease.lease, lease.request, host, gpus, lease.fence, left_s, *price, *share, shared=shared
    )


def _asker(request: RequestId, message: FromScheduler, owners: Owners) -> ToKernel | None:
    owner = owners.requests.get(request)
    return None if owner is None else (owner.kernel_id, message)


def range_in_words(range_s: tuple[float, float] | None) -> str:
    """Say in a clause how long such a wait takes 8 times in 10; empty where nobody knows, or it is short."""
    if range_s is None or range_s[1] < RANGE_S_MIN:
        return ""
    shortest, longest = seconds_in_words(range_s[0]), seconds_in_words(range_s[1])
    return "" if shortest == longest else f"8 times in 10 it takes {shortest} to {longest}"
