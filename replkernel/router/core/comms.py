"""The comms that are open: their target, and the replica that holds the kernel's end of each.

Pure. Law: bounded; the oldest comm is forgotten when a front end opens more than the limit.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from replkernel.records import ReplicaId
from replkernel.router.core.contents import CommContent, read

COMMS_MAX = 10_000
COMM_TYPES = frozenset({"comm_open", "comm_msg", "comm_close"})


class OpenComm(msgspec.Struct, frozen=True):
    """One open comm."""

    target_name: str
    replica: ReplicaId


class Comms:
    """All open comms of the kernel."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, OpenComm] = OrderedDict()

    def saw(self, msg_type: str, content: bytes, replica: ReplicaId) -> None:
        """Take note of a comm message between a client and `replica`, in either direction."""
        if msg_type == "comm_msg":
            return
        comm = read(CommContent, content)
        if msg_type == "comm_open" and comm.comm_id:
            self._open[comm.comm_id] = OpenComm(comm.target_name, replica)
            if len(self._open) > COMMS_MAX:
                self._open.popitem(last=False)
        elif msg_type == "comm_close":
            self._open.pop(comm.comm_id, None)

    def holder(self, content: bytes) -> ReplicaId | None:
        """Return the replica that holds the comm which a message is for."""
        comm = self._open.get(read(CommContent, content).comm_id)
        return None if comm is None else comm.replica

    def held_by(self, replica: ReplicaId) -> bool:
        """Tell whether a replica holds any comm."""
        return any(comm.replica == replica for comm in self._open.values())

    def drop(self, replica: ReplicaId) -> list[str]:
        """Forget the comms of a lost replica and return their ids."""
        gone = [comm_id for comm_id, comm in self._open.items() if comm.replica == replica]
        for comm_id in gone:
            del self._open[comm_id]
        return gone

    def info(self, target_name: str | None) -> dict[str, dict[str, str]]:
        """Return the open comms as a comm_info_reply lists them."""
        return {
            comm_id: {"target_name": comm.target_name}
            for comm_id, comm in self._open.items()
            if target_name is None or comm.target_name == target_name
        }

    def check_invariants(self) -> None:
        """Assert the bound."""
        assert len(self._open) <= COMMS_MAX
