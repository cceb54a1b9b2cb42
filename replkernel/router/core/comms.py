"""The comms that are open: their target, and the replica that holds the kernel's end of each.

Widgets come back under the ids of their comms, so these outlive a lost process: they are nobody's until the
next message about them.
Pure. Law: bounded; the oldest comm is forgotten when a front end opens more than the limit.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from replkernel.records import ReplicaId
from replkernel.router.core.contents import CommContent, WidgetContent, read

COMMS_MAX = 10_000
COMM_TYPES = frozenset({"comm_open", "comm_msg", "comm_close"})
WIDGETS = "jupyter.widget"
"""The target of the comms of widgets."""
FIGURES = ("jupyter-matplotlib", "jupyterlab-plotly", "plotlywidget")
"""Modules of widgets that draw figures: the next process has other ones in their place."""
PLOTLY = "plotly."


class OpenComm(msgspec.Struct, frozen=True):
    """One open comm."""

    target_name: str
    replica: ReplicaId | None
    comes_back: bool = False
    """Whether the next process has it as well."""


class Comms:
    """All open comms of the kernel."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, OpenComm] = OrderedDict()
        self._nobodys: set[str] = set()

    def saw(self, msg_type: str, content: bytes, replica: ReplicaId) -> None:
        """Take note of a comm message between a client and `replica`, in either direction."""
        if msg_type == "comm_msg" and not self._nobodys:
            return
        comm = read(CommContent, content)
        if comm.comm_id in self._nobodys:
            self._nobodys.discard(comm.comm_id)
            self._open[comm.comm_id] = OpenComm(self._open[comm.comm_id].target_name, replica, True)
        if msg_type == "comm_open" and comm.comm_id:
            comes_back = comm.target_name == WIDGETS and not _draws(content)
            self._open[comm.comm_id] = OpenComm(comm.target_name, replica, comes_back)
            if len(self._open) > COMMS_MAX:
                self._nobodys.discard(self._open.popitem(last=False)[0])
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
        """Forget the comms of a lost replica, but for those of widgets, and return their ids."""
        held = [(comm_id, comm) for comm_id, comm in self._open.items() if comm.replica == replica]
        for comm_id, comm in held:
            if comm.comes_back:
                self._open[comm_id] = OpenComm(comm.target_name, None, True)
                self._nobodys.add(comm_id)
            else:
                del self._open[comm_id]
        return [comm_id for comm_id, _ in held if comm_id not in self._nobodys]

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
        assert self._nobodys == {comm_id for comm_id, comm in self._open.items() if comm.replica is None}


def _draws(content: bytes) -> bool:
    """Tell whether a widget that is opened draws a figure."""
    state = read(WidgetContent, content).data.state
    return state.module in FIGURES or state.python_class.startswith(PLOTLY)
