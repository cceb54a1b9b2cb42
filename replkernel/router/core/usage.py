"""What the kernel's processes use of GPUs, as agents see it, beside what the kernel has leases on.

Pure. Law: its owner is told once of each GPU that is used without a lease, and of each lease of which more
memory is used than was asked for; one look is no proof, for leases come and go between looks.
"""

from __future__ import annotations

from replkernel.protocol.agent_to_router import GpusUsed
from replkernel.records import ReplicaId
from replkernel.router.core.leases import Leases

LOOKS_MIN = 2
"""So many looks in a row must see a use before it is told of."""
SLACK = 1.05
"""Allocators take memory in pieces: so much more than was asked for is not told of."""


class Usage:
    """One kernel's."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._looks: dict[tuple[ReplicaId, str], int] = {}
        self._told: set[str] = set()
        """The leases of which it was told that more memory is used."""

    def heard(self, said: GpusUsed, host: str) -> list[str]:
        """Take what a replica's processes use; return what the user must be told."""
        used = dict(said.gpus) if self._leases.scheduler.governed else {}
        for key in [key for key in self._looks if key[0] == said.replica and key[1] not in used]:
            del self._looks[key]
        self._told &= self._leases.held_leases.by_id.keys()
        return [text for gpu, count in used.items() if (text := self._look(said.replica, gpu, count, host))]

    def lost(self, replica: ReplicaId) -> None:
        """Forget what a process used that is gone."""
        for key in [key for key in self._looks if key[0] == replica]:
            del self._looks[key]

    def _look(self, replica: ReplicaId, gpu: str, count: int, host: str) -> str:
        leases = self._leases.held_leases.by_id.values()
        held = next((each for each in leases if gpu in each.lease.gpus), None)
        if held is None:
            looks = self._looks[replica, gpu] = self._looks.get((replica, gpu), 0) + 1
            return unleased(replica, gpu, count, host) if looks == LOOKS_MIN else ""
        self._looks.pop((replica, gpu), None)
        lease = held.lease.lease
        if not held.vram_gb or count <= held.vram_gb * 2**30 * SLACK or lease in self._told:
            return ""
        self._told.add(lease)
        return too_much(gpu, count, held.vram_gb, part=bool(held.lease.part))


def unleased(replica: str, gpu: str, count: int, host: str) -> str:
    """Return what is said of a use that no lease allows."""
    return (
        f"replkernel: {replica} of this notebook has {count / 2**30:.3g} GiB on {gpu} of host {host} without "
        "a lease: somebody else may be given that GPU. Delete what lies there, or ask for it (`%%gpu` at a "
        "cell's top)."
    )


def too_much(gpu: str, count: int, asked_gb: float, *, part: bool = False) -> str:
    """Return what is said of more memory than was asked for."""
    if part:
        return (
            f"replkernel: this notebook has {count / 2**30:.3g} GiB on {gpu}, and its part of it has "
            f"{asked_gb:g} GiB: what others were promised there is in use. Ask for a larger part, or for a "
            "whole GPU (`%%gpu 1`), or have other libraries and processes of yours take less."
        )
    return (
        f"replkernel: this notebook has {count / 2**30:.3g} GiB on {gpu} and asked for {asked_gb:g} GiB: ask "
        "for what it needs (`%%gpu 1 --vram GIB`), so that it is given a GPU which has that."
    )
