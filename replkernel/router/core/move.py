"""One replica's move: how far it has come, and what the group is asked for on the way.

Pure. Law: before its turning point (LEAVING) a move can be taken back from wherever it stands, then never.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from replkernel.protocol.router_to_agent import ChangeMembers
from replkernel.records import HostName, KernelId, MoveRecord, ReplicaId

FIND_LIMIT_S = 10.0
"""How long the agent of the new host may take to welcome us."""
ADD_LIMIT_S = 45.0
"""How long the group may take to take the new replica in."""
SETTLE_LIMIT_S = 60.0
"""How long the old replica may go on running a cell, or committing one, before the move is taken back."""


class Phase(Enum):
    """How far a move has come."""

    FINDING = "finding"
    PREPARING = "preparing"
    ADDING = "adding"
    JOINING = "joining"
    SETTLING = "settling"
    LEAVING = "leaving"
    UNDOING = "undoing"


class Move(msgspec.Struct):
    """One move: `new` on `host` takes the place of `leaves`; `why` it is taken back.

    `asked` are the hosts that have been asked for the step under way, all again at `ask_at`.
    """

    order: str
    host: HostName
    leaves: ReplicaId
    deadline: float
    new: ReplicaId = ReplicaId("")
    address: str = ""
    phase: Phase = Phase.FINDING
    ask_at: float = 0.0
    asked: frozenset[HostName] = frozenset()
    why: str = ""

    def change(self, kernel_id: KernelId) -> ChangeMembers:
        """Return what the group is asked for in this phase."""
        if self.phase is Phase.UNDOING:
            return ChangeMembers(kernel_id, self.new, "", self.new, self.address)
        leaves = self.leaves if self.phase is Phase.LEAVING else ReplicaId("")
        return ChangeMembers(kernel_id, self.new, self.address, leaves)

    def record(self) -> MoveRecord:
        """Return what the next router must know."""
        settled = self.phase is Phase.LEAVING
        return MoveRecord(str(self.new), str(self.host), str(self.leaves), self.address, settled)
