"""What host agents say of a kernel's replicas, their group and its checkpoints: who decides about which.

Pure. Law: an agent that speaks another version is used for nothing.
"""

from __future__ import annotations

from replkernel.errors import ProtocolMismatch
from replkernel.protocol.agent_to_router import (
    AboutGround,
    AboutMembers,
    AboutRest,
    AgentRefuses,
    AgentToRouter,
    AgentWelcome,
    CheckpointFound,
    CheckpointWritten,
    Committed,
    CommitTrouble,
    Elected,
    GpusUsed,
    GroundDescribed,
    InstallEnded,
    InterruptSent,
    KernelEnded,
    KernelHibernated,
    KernelTakenOver,
    LeaseFreed,
    MemberBroken,
    MembersChanged,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaUnfaithful,
    RouteNotice,
    StatusAnswer,
    WentBack,
)
from replkernel.protocol.message import check_version
from replkernel.protocol.process_to_agent import HibernationWanted
from replkernel.protocol.router_to_agent import HibernateKernel
from replkernel.records import HostName
from replkernel.router.core.answers import Fault
from replkernel.router.core.ending import Ending
from replkernel.router.core.events import Effect, Log, ToAgent
from replkernel.router.core.governor import Governor
from replkernel.router.core.hibernation import Hibernation
from replkernel.router.core.host_environments import HostEnvironments
from replkernel.router.core.installs import Installs
from replkernel.router.core.lost_replicas import LostReplicas
from replkernel.router.core.parts import Parts
from replkernel.router.core.progress import Progress
from replkernel.router.core.relocation import Relocation
from replkernel.router.core.remote_status import RemoteStatus
from replkernel.router.core.replacement import Replacement
from replkernel.router.core.shell import Shell


class AgentMessages:
    """Who takes which message of an agent."""

    def __init__(
        self,
        parts: Parts,
        shell: Shell,
        *,
        lost_replicas: LostReplicas,
        hibernation: Hibernation,
        replacement: Replacement,
        relocation: Relocation,
        governor: Governor,
        host_environments: HostEnvironments,
        installs: Installs,
        remote_status: RemoteStatus,
        ending: Ending,
        progress: Progress,
    ) -> None:
        self._parts = parts
        self._shell = shell
        self._lost_replicas = lost_replicas
        self._hibernation = hibernation
        self._replacement = replacement
        self._relocation = relocation
        self._governor = governor
        self._host_environments = host_environments
        self._installs = installs
        self._remote_status = remote_status
        self._ending = ending
        self._progress = progress

    def handle(self, host: HostName, message: AgentToRouter, now: float) -> list[Effect]:
        """Take a message of a host's agent."""
        fleet, notices = self._parts.fleet, self._parts.notices
        match message:
            case AgentWelcome():
                return self._welcomed(host, message, now)
            case AgentRefuses():
                return fleet.agents.refused(host, message.why)
            case ReplicaPrepared():
                return fleet.prepared(message, now)
            case ReplicaReady():
                message = fleet.as_reached(host, message)
                return self._lost_replicas.lost_unseen(message, now) + fleet.became_ready(message)
            case ReplicaLost():
                return self._lost_replicas.lost(message, now)
            case Committed() | WentBack() | Elected():
                self._parts.succession.heard(message)
            case InterruptSent():
                self._shell.interrupts.sent(message)
            case ReplicaUnfaithful():
                return notices.tell(self._parts.placement.doubts.take(message.replica, message.pins))
            case CommitTrouble():
                notices.trouble(message.replica, message.why)
                return [Log(message.why, "warning")] if message.why else []
            case RouteNotice():
                return notices.tell(message.text)
            case LeaseFreed() | GpusUsed():
                return self._governor.told(message, host)
            case StatusAnswer():
                return self._remote_status.answered(host, message)
            case _:
                return self._about_group(host, message, now)
        return []

    def _about_group(
        self, host: HostName, message: AboutRest | AboutMembers | AboutGround, now: float
    ) -> list[Effect]:
        match message:
            case GroundDescribed():
                host_environments = self._host_environments.described(host, message, now)
                return host_environments + self._installs.described(host, message)
            case InstallEnded():
                return self._installs.ended(host, message)
            case MembersChanged() if self._relocation.active:
                return self._relocation.heard(message, now)
            case MembersChanged() | MemberBroken():
                return self._replacement.heard(message, now)
            case CheckpointFound():
                return self._checkpoint_found(message, now)
            case CheckpointWritten():
                return self._hibernation.saved(host, message, now)
            case KernelHibernated():
                return self._hibernation.stopped(host, now)
            case HibernationWanted():
                return self._hibernation.want(None, "a cell asked for it")
            case KernelTakenOver():
                return self._taken_over(message, now)
            case KernelEnded():
                return self._ending.ended_by(host, now)

    def gone(self, host: HostName, now: float) -> list[Effect]:
        """Take note that the connection to a host's agent has ended."""
        self._host_environments.gone(host)
        if self._ending.begun:
            return self._ending.gone(host)
        gone = self._parts.fleet.agents.gone(host, now) + self._installs.gone(host)
        return gone + self._remote_status.gone(host) + self._hibernation.stopped(host, now)

    def _welcomed(self, host: HostName, welcome: AgentWelcome, now: float) -> list[Effect]:
        try:
            check_version(welcome.version, f"agent of host {host}")
        except ProtocolMismatch as mismatch:
            return self._parts.fleet.agents.missing(host, Fault("ProtocolMismatch", str(mismatch)))
        return self._host_environments.welcomed(host, welcome, now)

    def _taken_over(self, message: KernelTakenOver, now: float) -> list[Effect]:
        """Run nothing any more: another router goes on from this kernel's checkpoint, and counts."""
        fleet = self._parts.fleet
        if message.generation <= fleet.generation or self._hibernation.holds:
            return []
        put_down = self._lost_replicas.put_down("the kernel goes on elsewhere", now)
        stop = HibernateKernel(fleet.kernel_id, "stop")
        stopped: list[Effect] = [ToAgent(host, stop) for host in fleet.keeping()]
        return [*put_down, *stopped, *fleet.yield_to(message.generation, now)]

    def _checkpoint_found(self, message: CheckpointFound, now: float) -> list[Effect]:
        fleet, notices = self._parts.fleet, self._parts.notices
        if message.why:
            fleet.checkpoint_found(message, now)
            return notices.tell(message.why)
        if not fleet.checkpoint_found(message, now):
            return []
        told = [*message.notices]
        if message.name or not fleet.awaits_group:
            told.append(self._parts.succession.resumed(message))
            self._progress.brought_back(message.seq, now)
            self._shell.counted(message.execution_count)
        return [effect for text in told for effect in notices.tell(text)]
