"""The router's decisions: one kernel's clients on one side, its replicas and their agents on the other.

Pure: same events, same times and same seed give the same effects. Law: every request is answered exactly
once, no cell runs twice, and a lost replica costs the cell that it ran and nothing else.
"""

from __future__ import annotations

import msgspec

from replkernel import protocol
from replkernel.errors import ExecutorLost, ProtocolMismatch
from replkernel.records import HostName, ReplicaId
from replkernel.router import answers, events
from replkernel.router.answers import Fault
from replkernel.router.comms import COMM_TYPES
from replkernel.router.control import Control
from replkernel.router.ending import Ending
from replkernel.router.events import ClientRequest, Effect, Event, ReplicaMessage
from replkernel.router.fleet import Fleet
from replkernel.router.parts import Parts
from replkernel.router.placement import Placement
from replkernel.router.queue import READ_ONLY
from replkernel.router.shell import Shell
from replkernel.router.succession import Succession
from replkernel.router.wire import pack


class Identity(msgspec.Struct, frozen=True):
    """What the router can say of the kernel by itself: kernel_info's content, and the ports it listens on."""

    kernel_info: bytes
    ports: dict[str, int]


class Router:
    """One kernel's router as a state machine."""

    def __init__(self, fleet: Fleet, placement: Placement, identity: Identity) -> None:
        self._identity = identity
        self._parts = Parts(
            fleet, placement, Succession(fleet, placement), own_kernel_info=identity.kernel_info
        )
        self._shell = Shell(self._parts)
        self._control = Control(self._parts)
        self._ending: Ending | None = None
        self._asks_stdin: ReplicaId | None = None

    def start(self, now: float) -> list[Effect]:
        """Announce the kernel and look for its agents."""
        return [events.Publish("status", b"{}", answers.STARTING), *self._parts.fleet.search(now)]

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event and return what to do about it, in order."""
        effects = self._dispatch(event, now)
        if self._ending is not None:
            return effects + self._ending.advance(now)
        if not self._parts.fleet.settled:
            effects += self._parts.fleet.tick(now)
        if self._control.waits:
            effects += self._control.advance(now)
        effects += self._shell.advance(now)
        return effects

    def deadline(self) -> float | None:
        """Return when the next Tick is due."""
        if self._ending is not None:
            return self._ending.deadline
        times = (self._shell.deadline(), self._control.deadline(), self._parts.fleet.deadline())
        return min((time for time in times if time is not None), default=None)

    def check_invariants(self) -> None:
        """Assert the laws of every part."""
        self._parts.check_invariants()
        self._shell.check_invariants()
        self._control.check_invariants()

    def _dispatch(self, event: Event, now: float) -> list[Effect]:
        match event:
            case events.ReplicaMessage():
                return self._from_replica(event, now)
            case events.ClientRequest():
                return self._from_client(event, now)
            case events.AgentSaid():
                return self._from_agent(event.host, event.message, now)
            case events.AgentFound():
                return self._parts.fleet.found(event.host, event.token, now)
            case events.AgentMissing():
                return self._parts.fleet.missing(event.host, Fault(event.ename, event.why))
            case events.AgentGone():
                if self._ending is not None:
                    return self._ending.ended(event.host)
                return self._parts.fleet.gone(event.host, now)
            case events.Noticed():
                return self._notice(event.text)
            case events.Subscribed():
                content = pack({"subscription": event.topic.decode("utf-8", "replace")})
                return [events.Publish("iopub_welcome", b"{}", content, topic=event.topic)]
            case events.InterruptSignal():
                return self._interrupt_by_signal()
            case events.EndSignal():
                return self._end(None, event.why, now)
            case events.Tick():
                return []

    # -- clients ------------------------------------------------------------------------------------

    def _from_client(self, request: ClientRequest, now: float) -> list[Effect]:
        if self._ending is not None:
            return []
        kind = request.header.msg_type
        if request.channel == "stdin":
            return self._from_stdin(request)
        if kind == "connect_request":
            return answers.whole(request, pack({"status": "ok", **self._identity.ports}))
        if request.channel == "control":
            return self._from_control(request, now)
        target = self._parts.succession.designated()
        if request.header.subshell_id is not None and target is not None:
            return self._to_subshell(request, target)
        return self._shell.handle(request, now)

    def _to_subshell(self, request: ClientRequest, target: ReplicaId) -> list[Effect]:
        """Give a message to a subshell, which lives in the executor's process and has its own queue there."""
        if request.repeated:
            return []
        kind = request.header.msg_type
        if kind in COMM_TYPES:
            holder = self._parts.comms.holder(request.content)
            target = holder if holder is not None and holder in self._parts.fleet.ready() else target
            self._parts.comms.saw(kind, request.content, target)
        self._parts.traffic.give(request, target)
        return [events.ToReplica(target, "shell", [*request.identities, *request.frames])]

    def _from_control(self, request: ClientRequest, now: float) -> list[Effect]:
        kind = request.header.msg_type
        if kind == "shutdown_request":
            return self._end(request, "a client asked for it", now)
        if kind == "interrupt_request":
            cancelled = self._shell.interrupt()
            if cancelled:
                return cancelled + self._control.interrupted(request, None)
            running = self._shell.running
            target = self._parts.succession.designated() if running is None else running.replica
            return self._control.interrupted(request, target)
        return self._control.handle(request, now)

    def _from_stdin(self, request: ClientRequest) -> list[Effect]:
        target = self._asks_stdin or self._parts.succession.designated()
        if target is None or target not in self._parts.fleet.ready():
            return []
        return [events.ToReplica(target, "stdin", [*request.identities, *request.frames])]

    # -- replicas -----------------------------------------------------------------------------------

    def _from_replica(self, message: ReplicaMessage, now: float) -> list[Effect]:
        if message.channel == "iopub":
            return self._published(message)
        if message.channel == "stdin":
            self._asks_stdin = message.replica
            return [events.PassToClient("stdin", [*message.prefix, *message.frames])]
        if not self._parts.traffic.admits_reply(message, self._parts.placement.executor):
            return []
        if message.channel == "control":
            return self._control.replied(message)
        return self._shell.replied(message, now)

    def _published(self, message: ReplicaMessage) -> list[Effect]:
        if message.msg_type == "iopub_welcome":
            self._parts.fleet.became_linked(message.replica)
            return []
        if not self._parts.traffic.admits_output(message, self._parts.placement.executor):
            return []
        if message.msg_type in COMM_TYPES:
            self._parts.comms.saw(message.msg_type, message.content, message.replica)
        passed = events.PassToIopub([*message.prefix, *message.frames])
        return [passed, *self._shell.published(message)]

    # -- agents -------------------------------------------------------------------------------------

    def _from_agent(self, host: HostName, message: protocol.AgentToRouter, now: float) -> list[Effect]:
        fleet, succession = self._parts.fleet, self._parts.succession
        match message:
            case protocol.AgentWelcome():
                return self._welcomed(host, message, now)
            case protocol.AgentRefuses():
                return fleet.refused(host, message.why)
            case protocol.ReplicaPrepared():
                return fleet.prepared(message, now)
            case protocol.ReplicaReady():
                return fleet.became_ready(message)
            case protocol.ReplicaLost():
                return self._lost(message, now)
            case protocol.Committed():
                succession.saw_commit(message)
            case protocol.ReplicaUnfaithful():
                return self._notice(self._parts.placement.doubts.take(message.replica, message.pins))
            case protocol.Elected():
                succession.elected(message)
            case protocol.CommitTrouble():
                self._parts.notices.trouble(message.replica, message.why)
                return [events.Log(message.why, "warning")] if message.why else []
            case protocol.RouteNotice():
                return self._notice(message.text)
            case protocol.KernelEnded():
                return self._ended_by(host, now)
            case protocol.StatusAnswer():
                pass
        return []

    def _ended_by(self, host: HostName, now: float) -> list[Effect]:
        """Take note of a host's end of the kernel; unasked (its agent was stopped), it is the end of it all.

        A host without a replica of ours speaks of a kernel before this one, under the same id.
        """
        effects: list[Effect] = []
        if self._ending is None:
            if not self._parts.fleet.serves(host):
                return []
            effects = self._end(None, f"the agent of host {host} has ended it", now)
        assert self._ending is not None
        return effects + self._ending.ended(host)

    def _notice(self, text: str) -> list[Effect]:
        """Tell the user a sentence, if any: on the terminal now, in the notebook with the next cell."""
        if not text:
            return []
        self._parts.notices.add(text)
        return [events.Log(text, "warning")]

    def _welcomed(self, host: HostName, welcome: protocol.AgentWelcome, now: float) -> list[Effect]:
        try:
            protocol.check_version(welcome.version, f"agent of host {host}")
        except ProtocolMismatch as mismatch:
            return self._parts.fleet.missing(host, Fault("ProtocolMismatch", str(mismatch)))
        self._parts.succession.adopt(welcome, now)
        return self._parts.fleet.welcomed(host, welcome, now)

    def _lost(self, message: protocol.ReplicaLost, now: float) -> list[Effect]:
        replica = message.replica
        self._parts.placement.doubts.forget(replica)
        effects = self._parts.fleet.lost(message, now)
        fault = Fault("ExecutorLost", str(ExecutorLost(message.why)))
        effects += self._shell.lost(replica, fault)
        if self._parts.placement.executor == replica:
            self._parts.succession.executor_lost(now)
            self._parts.subshells.clear()
            self._parts.debugged = False
        self._parts.lanes.lost(replica)
        for request in self._parts.traffic.lost(replica):
            effects += self._take_back(request, fault)
        effects += [answers.comm_close(comm_id) for comm_id in self._parts.comms.drop(replica)]
        if self._asks_stdin == replica:
            self._asks_stdin = None
        return effects

    def _take_back(self, request: ClientRequest, fault: Fault) -> list[Effect]:
        """Have another replica answer what a lost one left, or end it when only that one could."""
        other = self._shell.standby()
        if request.header.msg_type in READ_ONLY and other is not None and request.channel == "shell":
            self._parts.traffic.give(request, other)
            way = self._parts.lanes.on_shell(other, request.header.msg_id)
            return [events.ToReplica(other, way, [*request.identities, *request.frames])]
        seen = self._parts.traffic.retire(request.header.msg_id)
        refusal = answers.refusal(request, fault)
        return refusal[1:] if seen else refusal

    # -- interrupt and end --------------------------------------------------------------------------

    def _interrupt_by_signal(self) -> list[Effect]:
        cancelled = self._shell.interrupt()
        running = self._shell.running
        if cancelled or running is None:
            return cancelled
        host = self._parts.fleet.replicas[running.replica].host
        interrupt = protocol.InterruptReplica(kernel_id=self._parts.fleet.kernel_id, replica=running.replica)
        return [events.ToAgent(host, interrupt)]

    def _end(self, request: ClientRequest | None, reason: str, now: float) -> list[Effect]:
        if self._ending is not None:
            return self._ending.leave()
        self._ending = Ending(self._parts.fleet, request, reason, now)
        return self._ending.begin()
