"""The comms that are open: their target, and the replica that holds the kernel's end of each.

Every replica has the widgets under the ids of their comms, so these are nobody's, and outlive a process.
Pure. Law: bounded; when more than the limit are opened, the oldest that is nobody's is forgotten, for that
holds nothing, or else the oldest.
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
CONTROL = "jupyter.widget.control"
"""The target of a comm on which a page asks once for the states of all widgets."""
FIGURES = ("jupyter-matplotlib", "jupyterlab-plotly", "plotlywidget")
"""Modules of widgets that draw figures: the next process has other ones in their place."""
PLOTLY = "plotly."


class OpenComm(msgspec.Struct, frozen=True):
    """One open comm; `replica` is None where whoever has the notebook has it too."""

    target_name: str
    replica: ReplicaId | None


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
            travels = comm.target_name == WIDGETS and not _draws(content)
            self._open[comm.comm_id] = OpenComm(comm.target_name, None if travels else replica)
            if len(self._open) > COMMS_MAX:
                travelling = (comm_id for comm_id, known in self._open.items() if known.replica is None)
                del self._open[next(travelling, next(iter(self._open)))]
        elif msg_type == "comm_close":
            self._open.pop(comm.comm_id, None)

    def not_opened(self, content: bytes) -> None:
        """Forget a comm whose opening has reached nobody."""
        self._open.pop(read(CommContent, content).comm_id, None)

    def holder(self, content: bytes) -> ReplicaId | None:
        """Return the replica that alone has the comm which a message is for."""
        comm = self._open.get(read(CommContent, content).comm_id)
        return None if comm is None else comm.replica

    def asks(self, msg_type: str, content: bytes) -> bool:
        """Tell whether a message only asks for what widgets hold; others may change the notebook."""
        comm = read(CommContent, content)
        known = self._open.get(comm.comm_id)
        opened = comm.target_name if msg_type == "comm_open" or known is None else known.target_name
        return opened == CONTROL

    def held_by(self, replica: ReplicaId) -> bool:
        """Tell whether a replica has any comm that no other could go on with."""
        return any(comm.replica == replica and comm.target_name != CONTROL for comm in self._open.values())

    def any_widgets(self) -> bool:
        """Tell whether there is a comm of a widget, or of a page that asks for widgets."""
        return any(comm.replica is None or comm.target_name == CONTROL for comm in self._open.values())

    def drop(self, replica: ReplicaId) -> list[str]:
        """Forget the comms that a lost replica alone had, and return their ids."""
        lost = [comm_id for comm_id, comm in self._open.items() if comm.replica == replica]
        for comm_id in lost:
            del self._open[comm_id]
        return lost

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


def _draws(content: bytes) -> bool:
    """Tell whether a widget that is opened draws a figure."""
    state = read(WidgetContent, content).data.state
    return state.module in FIGURES or state.python_class.startswith(PLOTLY)
