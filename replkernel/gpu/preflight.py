"""Whether the driver may be asked to suspend a process, or to bring it back. Pure: `driver.py` asks.

The driver finds some of this half-way, by an error or by ending the process; each is told here before. Law: a
refusal is one clause for the user, and leads to torch's way, or the lease is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from replkernel.gpu.backend import bytes_in_words

SPARE = 1.1
"""The driver keeps a copy of device memory on the host: so much more than it is must be free there."""
UVM_MAPPINGS_MAX = 1
"""CUDA itself maps the device of managed memory once; what is more is the notebook's."""
NCCL_THREADS = ("NCCL", "nccl", "pt_nccl")


class Facts(msgspec.Struct, frozen=True):
    """What is known of a process before the driver is asked; None: the system does not tell."""

    gpus: tuple[str, ...] = ()
    bytes: int = 0
    """What it has on its GPUs, as NVML or else torch says."""
    host_free: int | None = None
    """What the machine, and the container, have left."""
    uvm_mappings: int | None = None
    threads: tuple[str, ...] = ()
    """The names of its threads, the system's and not Python's."""
    shares: int = 0
    """Storages on a GPU that it shares with other processes."""


def refusal(facts: Facts) -> str:
    """Return why the driver is not to be asked, or nothing."""
    if any(gpu.startswith("MIG-") for gpu in facts.gpus):
        return "the driver suspends no process on a part of a GPU (MIG)"
    if (facts.uvm_mappings or 0) > UVM_MAPPINGS_MAX:
        return "the process has managed memory (UVM), which the driver may not suspend"
    if any(name.startswith(NCCL_THREADS) for name in facts.threads):
        return "NCCL is at work in the process, which the driver may not suspend"
    if facts.shares:
        return f"{facts.shares} tensors on the GPU are shared with other processes (CUDA IPC)"
    if facts.host_free is not None and facts.bytes * SPARE > facts.host_free:
        return f"the host has {bytes_in_words(facts.host_free)} of memory left"
    return ""


def no_room(needed: Mapping[str, int], free: Mapping[str, int]) -> str:
    """Return which GPU has too little memory left for what comes back to it, or nothing.

    A GPU of which nobody tells what is free is tried.
    """
    for gpu, count in needed.items():
        left = free.get(gpu, count)
        if left < count:
            return f"{bytes_in_words(count)} have to go back to {gpu}, which has {bytes_in_words(left)} free"
    return ""
