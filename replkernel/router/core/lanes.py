"""The two ways into a replica's main shell: the direct one for executions, the shell channel for all else.

Pure. Law: what a client sent first is begun first, whichever way it went; so an execution takes the direct
way only when nothing on the other one is before it.
"""

from __future__ import annotations

from replkernel.records import ReplicaId
from replkernel.router.core.events import RequestChannel
from replkernel.router.core.traffic import IDLE, Traffic


class Lanes:
    """Which way each replica was last written to, and whether that has been dealt with."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._last_on_shell: dict[ReplicaId, str] = {}
        self._last_direct: dict[ReplicaId, str] = {}

    def for_execution(self, replica: ReplicaId, msg_id: str) -> RequestChannel:
        """Return the way that an execution takes now."""
        before = self._last_on_shell.get(replica)
        if before is not None and not self._traffic.seen(before) & IDLE:
            self._last_on_shell[replica] = msg_id
            return "shell"
        self._last_on_shell.pop(replica, None)
        self._last_direct[replica] = msg_id
        return "executions"

    def on_shell(self, replica: ReplicaId, msg_id: str) -> RequestChannel:
        """Return the way of everything else, and note that it is taken."""
        self._last_on_shell[replica] = msg_id
        return "shell"

    def opening(self, replica: ReplicaId) -> bool:
        """Tell whether an execution is on the direct way and has not begun: what comes now waits for it."""
        msg_id = self._last_direct.get(replica)
        if msg_id is None:
            return False
        if self._traffic.seen(msg_id) or self._traffic.waiting(msg_id) is None:
            del self._last_direct[replica]
            return False
        return True

    def lost(self, replica: ReplicaId) -> None:
        """Forget what was sent to a process that is gone."""
        self._last_on_shell.pop(replica, None)
        self._last_direct.pop(replica, None)
