"""What can happen to the scheduler: a tagged union of frozen structs."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replkernel_scheduler.types import Fence, GpuUuid, HostName, LeaseId, LeaseRequest, RequestId


class SchedulerEvent(msgspec.Struct, frozen=True, tag=True):
    """The base of all events."""


class HostUp(SchedulerEvent, frozen=True, tag=True):
    """A host offers its GPUs; when it is known already, these replace what it offered."""

    host: HostName
    gpus: tuple[GpuUuid, ...]


class HostDown(SchedulerEvent, frozen=True, tag=True):
    """A host is gone with everything that runs on it."""

    host: HostName


class LeaseAsked(SchedulerEvent, frozen=True, tag=True):
    """Somebody wants GPUs."""

    request: LeaseRequest


class LeaseWithdrawn(SchedulerEvent, frozen=True, tag=True):
    """The asker no longer wants its queued request."""

    request: RequestId


class LeaseRenewed(SchedulerEvent, frozen=True, tag=True):
    """The holder needs its lease for another `ttl_s` from now."""

    lease: LeaseId
    fence: Fence


class LeaseReleased(SchedulerEvent, frozen=True, tag=True):
    """The holder gives its GPUs back."""

    lease: LeaseId
    fence: Fence


class TimeReached(SchedulerEvent, frozen=True, tag=True):
    """The driver's timer, armed for `deadline()`, has fired."""


Event: TypeAlias = (
    HostUp | HostDown | LeaseAsked | LeaseWithdrawn | LeaseRenewed | LeaseReleased | TimeReached
)
