"""The vocabulary of gangs: GPUs on several hosts for one cell, which it has all at once or not at all.

Law: plain frozen structs. A gang is asked for under an id that is never used twice.
"""

from __future__ import annotations

from typing import ClassVar, NewType, TypeAlias

import msgspec

from replkernel_scheduler.effects import EndReason
from replkernel_scheduler.events import FREES, SchedulerEvent
from replkernel_scheduler.types import NOBODY, HostName, KernelId, Lease, LeaseId, RequestId, UserName

GangId = NewType("GangId", str)
"""What the asker calls its gang; asking again with the same id is the same gang."""


class GangSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cell of `kernel_id` wants `gpus` GPUs of one model on each of `hosts` hosts.

    `among` are those that may serve it (empty: any). The rest is what each of the hosts must have, as in a
    `LeaseRequest`.
    """

    gang: GangId
    kernel_id: KernelId
    user: UserName = NOBODY
    gpus: int = 1
    hosts: int = 2
    among: tuple[HostName, ...] = ()
    gpu_model: str = ""
    vram_gb: float = 0.0
    cpu: float = 0.0
    memory_gb: float = 0.0


class GangAsked(SchedulerEvent, frozen=True, tag=True, gc=False):
    """A cell wants GPUs on several hosts."""

    spec: GangSpec


class GangLeft(SchedulerEvent, frozen=True, tag=True, gc=False):
    """The cell is over, or waits no more: nothing of it is on the GPUs, but maybe on those of `unsure`."""

    turn: ClassVar[int] = FREES
    gang: GangId
    unsure: tuple[HostName, ...] = ()


GangEvent: TypeAlias = GangAsked | GangLeft


class GangEffect(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The base of all effects about gangs."""


class GangGranted(GangEffect, frozen=True, tag=True, gc=False):
    """Tell the asker that it has all of its leases, by their hosts' names (again, when it asked again)."""

    gang: GangId
    leases: tuple[Lease, ...]


class GangWaits(GangEffect, frozen=True, tag=True, gc=False):
    """Tell the asker that it waits: `place` 1 is the next gang, and has `has` of its hosts.

    `estimate_s` is how long the next of its hosts is thought to take; None: nobody knows.
    """

    gang: GangId
    place: int
    has: int = 0
    estimate_s: float | None = None


class GangEnds(GangEffect, frozen=True, tag=True, gc=False):
    """Tell that a gang's processes on these hosts are to end: its leases there are kept a while for that.

    `why` is one sentence for its asker; empty: he knows, or is gone.
    """

    gang: GangId
    hosts: tuple[HostName, ...]
    why: str = ""


class GangOver(GangEffect, frozen=True, tag=True, gc=False):
    """Tell that a gang has no leases any more, or will never have them (`refused`).

    `why` is one sentence; empty: its asker wanted that.
    """

    gang: GangId
    why: str = ""
    refused: bool = False


class GangLeased(GangEffect, frozen=True, tag=True, gc=False):
    """Tell who has to know of all leases that a gang has this one; its asker hears when it has all."""

    gang: GangId
    lease: Lease


class GangLeaseEnded(GangEffect, frozen=True, tag=True, gc=False):
    """Tell who has to know of all leases that a gang does not have this one any more."""

    gang: GangId
    lease: Lease
    why: EndReason


GangsEffect: TypeAlias = GangGranted | GangWaits | GangEnds | GangOver | GangLeased | GangLeaseEnded


class GangRecord(msgspec.Struct, kw_only=True):
    """A gang that waits or has its leases. `asked` numbers its requests, `request` is the one that waits.

    `broken` is why a lease of it ended unasked; `told` is what was said of its place. It ends from `ends_at`
    being set on, and what is left of it by then is over.
    """

    spec: GangSpec
    asked: int = 0
    request: RequestId | None = None
    leases: dict[LeaseId, Lease] = {}
    granted: bool = False
    broken: str = ""
    estimate_s: float | None = None
    told: tuple[int, int, float | None] | None = None
    ends_at: float | None = None
