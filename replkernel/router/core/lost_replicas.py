"""The end of a replica's process, part by part: its cell, who follows, its leases, what it owed clients.

Pure. Law: whatever the lost process was given is answered once, by another replica or by a fault.
"""

from __future__ import annotations

from replkernel.errors import ExecutorLost
from replkernel.protocol.agent_to_router import ReplicaLost, ReplicaReady
from replkernel.router.core import answers
from replkernel.router.core.answers import Fault
from replkernel.router.core.events import ClientRequest, Effect
from replkernel.router.core.parts import Parts
from replkernel.router.core.progress import Progress
from replkernel.router.core.queue import READ_ONLY
from replkernel.router.core.shell import Shell
from replkernel.router.core.usage import Usage

UNSEEN = "while its host agent was away"


class LostReplicas:
    """What one kernel does about replicas whose processes end."""

    def __init__(self, parts: Parts, shell: Shell, usage: Usage, progress: Progress) -> None:
        self._parts = parts
        self._shell = shell
        self._usage = usage
        self._progress = progress

    def lost(self, message: ReplicaLost, now: float) -> list[Effect]:
        """Go on without a replica's process: each part lets go of what it had there."""
        effects = self._let_go(message, now)
        self._progress.lost(message.replica, message.kept)
        return effects

    def _let_go(self, message: ReplicaLost, now: float) -> list[Effect]:
        parts, replica = self._parts, message.replica
        why = self._shell.interrupts.why_lost(replica, message.why)
        parts.placement.doubts.forget(replica)
        gone = parts.placement.lost(replica, parts.succession.last)
        effects = [*parts.fleet.lost(message, now), *parts.notices.tell(gone)]
        fault, owed = Fault("ExecutorLost", str(ExecutorLost(why))), parts.traffic.lost(replica)
        effects += self._shell.lost(replica, why, now - message.ago_s, message.kept)
        if parts.placement.executor == replica:
            parts.succession.executor_lost(now, message.kept, message.newest)
            parts.debugged = False
        parts.subshells.ended_with(replica)
        effects += parts.leases.process_lost(replica)
        self._usage.lost(replica)
        parts.lanes.lost(replica)
        self._shell.give_again(owed, now)
        for request in parts.traffic.lost(replica):
            effects += self._take_back(request, fault, now)
        effects += [answers.comm_close(comm_id) for comm_id in parts.comms.drop(replica)]
        if parts.asks_stdin == replica:
            parts.asks_stdin = None
        return effects

    def lost_unseen(self, message: ReplicaReady, now: float) -> list[Effect]:
        """Let go of a process that died while its agent was away: another one answers in its place."""
        if not self._parts.fleet.replaces(message):
            return []
        why = f"{message.unseen or 'its process ended'} {UNSEEN}"
        effects = self._let_go(ReplicaLost(message.replica, why, returning=True), now)
        self._progress.lost(message.replica, None)
        return effects

    def stranded(self, now: float) -> list[Effect]:
        """Let go of the replicas that their hosts know nothing of any more."""
        why = "its host has lost what it kept of it"
        lost = [ReplicaLost(name, why, returning=False) for name in self._parts.fleet.stranded()]
        return [effect for message in lost for effect in self.lost(message, now)]

    def put_down(self, why: str, now: float) -> list[Effect]:
        """End what is under way at the replicas, all of which are about to be stopped, or gone.

        What of the cells is lost by that, the checkpoint says from which the kernel goes on.
        """
        effects: list[Effect] = []
        for name, replica in self._parts.fleet.replicas.items():
            if replica.ready:
                effects += self._let_go(ReplicaLost(name, why, returning=True), now)
        return effects

    def _take_back(self, request: ClientRequest, fault: Fault, now: float) -> list[Effect]:
        """Have another replica, or the next process, answer what a lost one left; else end it."""
        if request.header.msg_type in READ_ONLY and request.channel == "shell":
            return self._shell.ask_again(request, now)
        seen = self._parts.traffic.retire(request.header.msg_id)
        refusal = answers.refusal(request, fault)
        return refusal[1:] if seen else refusal
