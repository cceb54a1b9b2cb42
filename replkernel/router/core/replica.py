"""One replica as the router sees it: where it is, whether its process can be used, its place in the group.

Pure. Law: what the process is linked by is forgotten when it is lost; its place in the group is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from replkernel.protocol.agent_to_router import ReplicaLost, ReplicaReady
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.records import HostName


@dataclass(slots=True)
class Replica:
    """One replica as the router sees it."""

    host: HostName
    address: str = ""
    ready: bool = False
    linked: bool = False
    returning: bool = True
    applied: int = 0
    why_lost: str = ""
    pid: int = 0
    endpoints: Endpoints | None = None
    member: bool = False
    """Whether it belongs to the Raft group that was started."""
    broken: str = ""
    """Why its Raft member cannot start any more."""
    forgotten: bool = False
    """Whether its host's agent, when last asked, kept others of the group and not this one."""
    dormant: bool = False
    """Whether its process has been told to end until it is wanted again."""
    recalled: bool = False
    """Whether another process was wanted since then, which is on its way."""

    def is_linked_to(self, message: ReplicaReady) -> bool:
        """Tell whether this is the process that we use, or are about to."""
        return (self.pid, self.endpoints) == (message.pid, message.endpoints)

    def has_process(self, message: ReplicaReady) -> None:
        """Take note of its process, whose output does not reach us yet."""
        self.ready, self.linked, self.returning, self.why_lost = True, False, True, ""
        self.dormant = False
        self.pid, self.endpoints = message.pid, message.endpoints

    def lost_process(self, message: ReplicaLost) -> None:
        """Take note that its process is gone."""
        self.ready = self.linked = False
        self.returning, self.dormant = message.returning, message.dormant
        self.recalled = self.recalled and message.returning and not message.dormant
        self.why_lost = "" if message.dormant else message.why

    def begin_anew(self) -> None:
        """Forget all but its host: its group is given up."""
        self.ready = self.linked = False
        self.broken, self.forgotten = "", False
        self.dormant = self.recalled = False
        self.address, self.endpoints = "", None
        self.returning, self.member = True, False
