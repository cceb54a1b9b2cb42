"""Whose processes use a host's GPUs: kernels' own, and what these have started. Pure.

Law: a process is a kernel's when it, or one that it comes from, is; of others nothing is said to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from replkernel.protocol.status import GpuStatus
from replkernel.records import KernelId, ReplicaId

DEPTH_MAX = 32
"""No longer line of parents is followed."""
CONTEXT_BYTES = 2**30
"""CUDA's own context may take so much of a real GPU: it stays where tensors have left, and is no use."""

Replica = tuple[KernelId, ReplicaId]
Use = dict[Replica, dict[str, int]]
"""The bytes that a replica's processes have on each GPU."""


def with_owners(
    gpus: tuple[GpuStatus, ...], owners: Mapping[int, Replica], parent: Callable[[int], int]
) -> tuple[tuple[GpuStatus, ...], Use]:
    """Return the GPUs with their processes' kernels, and what each replica uses; `owners` are by process.

    Processes that are no kernel's are left out.
    """
    use: Use = {}
    told = []
    for gpu in gpus:
        own = []
        for process in gpu.processes:
            owner = _owner(process.pid, owners, parent)
            if owner is None or process.memory_bytes <= (0 if gpu.fake else CONTEXT_BYTES):
                continue
            own.append(msgspec.structs.replace(process, kernel_id=owner[0]))
            on = use.setdefault(owner, {})
            on[gpu.uuid] = on.get(gpu.uuid, 0) + process.memory_bytes
        told.append(msgspec.structs.replace(gpu, processes=tuple(own)))
    return tuple(told), use


def _owner(pid: int, owners: Mapping[int, Replica], parent: Callable[[int], int]) -> Replica | None:
    for _ in range(DEPTH_MAX):
        if pid in owners:
            return owners[pid]
        if pid <= 1:
            return None
        pid = parent(pid)
    return None
