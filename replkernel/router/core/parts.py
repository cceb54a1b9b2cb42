"""The nouns that the router's decisions share: who serves, who was given what, what is open.

Pure. Law: each noun owns its own rules; only questions about several of them at once are answered here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replkernel.records import ReplicaId
from replkernel.router.core.comms import Comms
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.lanes import Lanes
from replkernel.router.core.leases import Leases
from replkernel.router.core.notices import Notices
from replkernel.router.core.placement import Placement
from replkernel.router.core.record import AnswerRecord
from replkernel.router.core.subshells import Subshells
from replkernel.router.core.succession import Succession
from replkernel.router.core.traffic import Traffic


@dataclass(slots=True)
class Parts:
    """What those have in common who take messages, decide about cells, or let go of a replica.

    `subshells` and `debugged` hold the executor where it is, as open comms do; a cell of `asks_stdin` was the
    last to ask for input; `own_kernel_info` is what the router says of the kernel until a replica speaks.
    """

    fleet: Fleet
    placement: Placement
    succession: Succession
    leases: Leases
    traffic: Traffic = field(default_factory=Traffic)
    lanes: Lanes = field(init=False)
    comms: Comms = field(default_factory=Comms)
    record: AnswerRecord = field(default_factory=AnswerRecord)
    notices: Notices = field(default_factory=Notices)
    subshells: Subshells = field(default_factory=Subshells)
    debugged: bool = False
    asks_stdin: ReplicaId | None = None
    own_kernel_info: bytes = b"{}"

    def __post_init__(self) -> None:
        self.lanes = Lanes(self.traffic)

    def kernel_info(self) -> bytes:
        """Return the content of a kernel_info_reply: a replica's own once one has told it."""
        return self.fleet.kernel_info or self.own_kernel_info

    def held(self) -> bool:
        """Tell whether the executor must stay: subshells, a debugger or comms live in its process."""
        executor = self.placement.executor
        if executor is None:
            return False
        return self.subshells.hold or self.debugged or self.comms.held_by(executor)

    def ties(self) -> str:
        """Say what of clients' doing holds the executor's process; nothing when it may end."""
        if not self.held():
            return ""
        if self.subshells.hold or self.debugged:
            return "a subshell or the debugger is open here (close it)"
        return "figures or other comms are tied to it (close them)"

    def check_invariants(self) -> None:
        """Assert every noun's own laws."""
        self.fleet.check_invariants()
        self.succession.check_invariants()
        self.leases.check_invariants()
        self.traffic.check_invariants()
        self.comms.check_invariants()
        self.record.check_invariants()
        self.notices.check_invariants()
