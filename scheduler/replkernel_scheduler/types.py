"""The scheduler's vocabulary: ids, hosts, lease requests and leases. Frozen structs, no behaviour.

All times are seconds on the driver's clock, which must never go back.
"""

from __future__ import annotations

from typing import NewType

import msgspec

HostName = NewType("HostName", str)
"""The name of a host, which is the name of the agent that serves it."""

GpuUuid = NewType("GpuUuid", str)
"""A GPU's UUID as its driver reports it; no two hosts may report the same one."""

KernelId = NewType("KernelId", str)
"""The id of the logical kernel that a lease is for."""

RequestId = NewType("RequestId", str)
"""What the asker calls its request; asking again with the same id is the same request."""

LeaseId = NewType("LeaseId", str)
"""The id of a lease, given by the scheduler and never used twice."""

Fence = NewType("Fence", int)
"""A number that only grows: of two leases on one GPU the newer has the larger fence."""


class Host(msgspec.Struct, frozen=True):
    """A host that is up, with the GPUs it offers, in its own order."""

    name: HostName
    gpus: tuple[GpuUuid, ...]


class LeaseRequest(msgspec.Struct, frozen=True):
    """A wish for `gpus` GPUs of one host for `ttl_s` seconds.

    `hosts` are the hosts that may serve it (those holding the kernel's replicas); empty means any.
    """

    request: RequestId
    kernel_id: KernelId
    gpus: int
    ttl_s: float
    hosts: frozenset[HostName] = frozenset()


class Lease(msgspec.Struct, frozen=True):
    """An exclusive grant of `gpus` on `host` until `expires_at`, unless renewed."""

    lease: LeaseId
    request: RequestId
    kernel_id: KernelId
    host: HostName
    gpus: tuple[GpuUuid, ...]
    fence: Fence
    ttl_s: float
    expires_at: float
