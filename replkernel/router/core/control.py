"""The control channel: what concerns the kernel is answered here, what concerns its process goes there.

Pure. Law: control never waits for a cell; before any replica is ready its messages wait, bounded in number
and time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from replkernel.protocol.points import REQUEST as HISTORY
from replkernel.protocol.variables import REQUEST as VARIABLES
from replkernel.records import ReplicaId
from replkernel.router.core import answers
from replkernel.router.core.answers import Fault
from replkernel.router.core.contents import DebugContent, SubshellContent, read
from replkernel.router.core.events import ClientRequest, Effect, Log, PassToClient, ReplicaMessage, ToReplica
from replkernel.router.core.parts import Parts

WAITING_MAX = 1000
"""How many control messages wait for a first replica at most."""
PATIENT = frozenset({"debug_request", "usage_request", HISTORY, VARIABLES})
"""What front ends ask by themselves, of a kernel that is only looked at."""
KERNEL_INFO_WAIT_S = 1.0
"""How long the executor may take to answer kernel_info on control before the router does it."""


@dataclass(slots=True)
class Inquiry:
    """A kernel_info_request that the executor was given, and when the router answers instead."""

    request: ClientRequest
    deadline: float


class Control:
    """The messages of the control channel, but for shutdown."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waiting: deque[ClientRequest] = deque()
        self._inquiries: dict[str, Inquiry] = {}

    @property
    def waits(self) -> bool:
        """Tell whether `advance` may have something to do."""
        return bool(self._waiting or self._inquiries)

    @property
    def needs_replica(self) -> bool:
        """Tell whether a message waits that wakes a kernel at rest; a debugger's inquiry does not."""
        return any(request.header.msg_type not in PATIENT for request in self._waiting)

    def handle(self, request: ClientRequest, now: float) -> list[Effect]:
        """Take a control message that is no interrupt and no shutdown."""
        if request.repeated:
            return [Log(f"a repeated {request.header.msg_type} was dropped")]
        target = self._parts.succession.designated()
        if request.header.msg_type == "kernel_info_request":
            if target is None:
                return answers.whole(request, self._parts.kernel_info())
            self._inquiries[request.header.msg_id] = Inquiry(request, now + KERNEL_INFO_WAIT_S)
        if target is not None:
            return self.forward(request, target)
        if len(self._waiting) >= WAITING_MAX:
            return answers.refusal(
                request, Fault("RuntimeError", "too many control messages wait for a replica")
            )
        self._waiting.append(request)
        return []

    def forward(self, request: ClientRequest, target: ReplicaId) -> list[Effect]:
        """Give a message to a replica's control thread."""
        if request.header.msg_type == "debug_request":
            self._note_debugger(request.content)
        elif request.header.msg_type == "delete_subshell_request":
            self._parts.subshells.deleted(read(SubshellContent, request.content).subshell_id)
        self._parts.traffic.give(request, target)
        return [ToReplica(target, "control", [*request.identities, *request.frames])]

    def _note_debugger(self, content: bytes) -> None:
        command = read(DebugContent, content).command
        if command == "initialize":
            self._parts.debugged = True
        elif command in ("disconnect", "terminate"):
            self._parts.debugged = False

    def replied(self, message: ReplicaMessage) -> list[Effect]:
        """Pass a reply on, taking note of the subshells that it creates."""
        self._inquiries.pop(message.parent_id, None)
        if message.msg_type == "create_subshell_reply":
            created = read(SubshellContent, message.content).subshell_id
            if created:
                widgets = self._parts.comms.any_widgets()
                self._parts.subshells.created(created, message.replica, for_widgets=widgets)
        return [PassToClient("control", [*message.prefix, *message.frames])]

    def advance(self, now: float) -> list[Effect]:
        """Send what waited for a replica; answer what waited too long."""
        effects: list[Effect] = []
        for msg_id, inquiry in list(self._inquiries.items()):
            if now >= inquiry.deadline:
                del self._inquiries[msg_id]
                seen = self._parts.traffic.retire(msg_id)
                answer = answers.whole(inquiry.request, self._parts.kernel_info())
                effects += answer[1:] if seen else answer
        if not self._waiting:
            return effects
        target = self._parts.succession.designated()
        fault = self._parts.fleet.unavailable(now)
        while self._waiting and (target is not None or fault is not None):
            request = self._waiting.popleft()
            if target is not None:
                effects += self.forward(request, target)
            elif fault is not None:
                effects += answers.refusal(request, fault)
        return effects

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        if not self.waits:
            return None
        times = [inquiry.deadline for inquiry in self._inquiries.values()]
        gives_up = self._parts.fleet.gives_up_at()
        if self._waiting and gives_up is not None:
            times.append(gives_up)
        return min(times, default=None)

    def check_invariants(self) -> None:
        """Assert the bound."""
        assert len(self._waiting) <= WAITING_MAX
