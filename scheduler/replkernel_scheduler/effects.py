"""What the scheduler wants done or told: a tagged union of frozen structs, performed in list order."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel_scheduler.types import HostName, Lease, LeaseId, RequestId

EndReason: TypeAlias = Literal["released", "expired", "host down", "gpu gone"]


class SchedulerEffect(msgspec.Struct, frozen=True, tag=True):
    """The base of all effects."""


class LeaseGranted(SchedulerEffect, frozen=True, tag=True):
    """Tell the asker that it holds this lease (again, when it asked or renewed again)."""

    lease: Lease


class LeaseQueued(SchedulerEffect, frozen=True, tag=True):
    """Tell the asker that it waits; `position` 1 is served next."""

    request: RequestId
    position: int


class LeaseRefused(SchedulerEffect, frozen=True, tag=True):
    """Tell the asker that its request will never be served; `why` is one sentence."""

    request: RequestId
    why: str


class LeaseEnded(SchedulerEffect, frozen=True, tag=True):
    """Tell the holder and the host that the lease is over; its GPUs are free."""

    lease: Lease
    why: EndReason


class LeaseUnknown(SchedulerEffect, frozen=True, tag=True):
    """Tell whoever renewed or released that no lease has this id and fence."""

    lease: LeaseId
    why: str


class HostRefused(SchedulerEffect, frozen=True, tag=True):
    """Tell a host that what it offers cannot be; `why` is one sentence."""

    host: HostName
    why: str


Effect: TypeAlias = LeaseGranted | LeaseQueued | LeaseRefused | LeaseEnded | LeaseUnknown | HostRefused
