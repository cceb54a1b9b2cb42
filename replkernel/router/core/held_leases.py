"""The leases that a kernel has in hand: whose each is, and when it must be renewed.

Pure. Law: a cell has one lease at most, one without a cell lingers, one that is let go of is forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import LEASES_TOLD_MAX, GrantedLease, HeldLease
from replkernel.records import ReplicaId

RENEWALS = 3
"""A lease is renewed so often within its time."""
RENEW_S_MIN = 0.5


@dataclass(slots=True)
class Held:
    """A lease in hand: of the cell `cell`, or lingering when that is empty. `replica` computes, or did."""

    lease: GrantedLease
    cell: str
    since: float
    renew_at: float
    replica: ReplicaId | None = None
    stays: bool = True
    """Whether it lingers once its cell is over."""
    asked: GpuRequest | None = None
    """What its cell asked for; None: nothing is known of that."""
    held_gb: float = 0.0
    """So much state the last cell left on its GPUs."""
    empty: bool = False
    """Whether the last cell left nothing on its GPUs."""
    rested_at: float = math.inf
    """Since when it lingers and may be left to others by itself; never, where that has failed."""
    wanted: bool = True
    """Whether somebody waits for it, if it is to be given back."""
    leaving: frozenset[ReplicaId] = frozenset()
    """The replicas whose processes are moving state off, so that the lease can be given back."""
    seen: bool = False
    """Whether an agent sees state there though the lease is to be given back."""
    pausing: bool = False
    """Whether its cell was told to stand still for a shorter one, and has not yet."""
    pause_s: float = 0.0
    """So long a shorter cell is thought to take for which it was told to; 0: nobody knows."""
    kept: bool = False
    """Whether state that could not be moved off lies on its GPUs: it is tried again with each renewal."""

    @property
    def vram_gb(self) -> float:
        """So much of each GPU's memory is the lease's, or was asked for, in GiB; 0: nothing was said."""
        if self.lease.part:
            return self.lease.vram_gb
        return 0.0 if self.asked is None else self.asked.vram_gb

    @property
    def may_hold(self) -> bool:
        """Whether a process that was asked to leave may have state there, and has not left yet."""
        return bool(self.leaving - ({self.replica} if self.empty else set()))

    @property
    def freeing(self) -> bool:
        """Whether state is being moved off, for the lease to be given back."""
        return bool(self.leaving)


class HeldLeases:
    """All leases in hand, by their ids, oldest first."""

    def __init__(self) -> None:
        self.by_id: dict[str, Held] = {}

    def take(self, lease: GrantedLease, cell: str, now: float, replica: ReplicaId | None = None) -> Held:
        """Hold a lease from now on."""
        held = self.by_id[lease.lease] = Held(lease, cell, now, now, replica)
        self.renewed(held, now)
        return held

    def drop(self, lease: str) -> Held | None:
        """Let go of a lease; return it if it was held."""
        return self.by_id.pop(lease, None)

    def of_cell(self, cell: str) -> Held | None:
        """Return the lease of a cell."""
        return next((held for held in self.by_id.values() if held.cell == cell), None)

    def lingering(self) -> list[Held]:
        """Return the leases under which no cell computes."""
        return [held for held in self.by_id.values() if not held.cell]

    def resting(self) -> list[Held]:
        """Return the lingering leases that are not being left yet."""
        return [held for held in self.by_id.values() if not held.cell and not held.freeing]

    def surplus(self) -> list[Held]:
        """Return the lingering leases that are more than may be told of."""
        return self.lingering()[: max(0, len(self.by_id) - LEASES_TOLD_MAX)]

    def told(self) -> tuple[HeldLease, ...]:
        """Return the leases as a scheduler is told of them."""
        leases = [held.lease for held in self.by_id.values()]
        return tuple(HeldLease(lease.lease, lease.fence) for lease in leases[-LEASES_TOLD_MAX:])

    # -- time -------------------------------------------------------------------------------------------

    def renewed(self, held: Held, now: float) -> None:
        """Take note that a lease's time begins anew."""
        held.renew_at = now + max(RENEW_S_MIN, held.lease.ttl_s / RENEWALS)

    def due(self, now: float) -> list[Held]:
        """Return the leases that must be renewed by now."""
        return [held for held in self.by_id.values() if now >= held.renew_at]

    def deadline(self) -> float | None:
        """Return when the next lease must be renewed."""
        return min((held.renew_at for held in self.by_id.values()), default=None)

    def check_invariants(self) -> None:
        """Assert that no cell has two leases, and the bound."""
        cells = [held.cell for held in self.by_id.values() if held.cell]
        assert len(cells) == len(set(cells)), "a cell has two leases"
        assert all(name == held.lease.lease for name, held in self.by_id.items())
        assert len(self.by_id) <= LEASES_TOLD_MAX + 1
