"""Whose a kernel, a lease or a request is, for a driver that lets nobody touch another's.

Law: it reads only. A kernel is the user's under whose name it first came, for as long as its account is kept.
"""

from __future__ import annotations

from typing import Literal

from replkernel_scheduler.parts import Parts
from replkernel_scheduler.types import KernelId, LeaseId, RequestId, UserName


def owner(parts: Parts, kind: Literal["kernel", "lease", "request"], name: str) -> UserName | None:
    """Return whose it is, None if nobody knows it."""
    if kind == "kernel":
        kernel = parts.kernels.by_id.get(KernelId(name))
        sums = parts.accounts.kernels.get(KernelId(name))
        return kernel.spec.user if kernel is not None else sums.user if sums is not None else None
    if kind == "lease":
        record = parts.leases.by_id.get(LeaseId(name))
        return record.lease.user if record is not None else None
    waiting = parts.queue.by_request.get(RequestId(name))
    serving = parts.leases.of_request.get(RequestId(name))
    if waiting is not None:
        return waiting.wish.user
    return serving.lease.user if serving is not None else None
