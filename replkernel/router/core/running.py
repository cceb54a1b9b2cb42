"""The execution that is under way at a replica.

Law: a shape and no steps; `shell.py` owns their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import GrantedLease
from replkernel.protocol.envelope import Envelope
from replkernel.records import ReplicaId
from replkernel.router.core.contents import ExecuteOptions
from replkernel.router.core.events import ClientRequest


@dataclass(slots=True)
class Execution:
    """The execution that is under way; `replied_at` is set once its reply has passed.

    `process` is the address of the kernel process that it was sent to.
    """

    request: ClientRequest
    options: ExecuteOptions
    replica: ReplicaId
    envelope: Envelope
    started_at: float
    replied_at: float | None = None
    undelivered: bool = False
    """Whether its replica's process was dead when it was sent."""
    process: str = ""
    lease: GrantedLease | None = None
    seen_before: int = 0
    """What clients had seen of it when it was sent: that it waited, or that a replica declined it."""
    silence_told: bool = False
    asks: GpuRequest | Literal[False] | None = None
    renewed: frozenset[ReplicaId] = frozenset()
    """The replicas whose processes have ended for its sake."""
    had: GpuRequest | None = None
    """What it asked for under the lease that it has left for a shorter cell."""
    leased_at: float = 0.0
    """When it got its lease, if it was running by then."""
    expecting: ReplicaId | None = None
    """The standby that was told to expect questions while this one runs."""
    turned_long: bool = False
    """Whether it has been looked for such a standby."""
    lost_at: float | None = None
    """When an execution of the router before this one counts as lost, unless its process is found first."""
