"""The subshells of the executor's process: clients make them, and they end with it.

Pure. Law: one in which somebody runs cells holds the notebook where it is; one for widgets alone does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from replkernel.records import ReplicaId
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.queue import EXECUTE


@dataclass(slots=True)
class Subshell:
    """A subshell of `replica`'s process. JupyterLab has one for widgets, which pass it by once it is gone."""

    replica: ReplicaId
    for_widgets: bool
    runs_cells: bool = False

    @property
    def holds(self) -> bool:
        """Whether somebody misses it who finds it gone."""
        return self.runs_cells or not self.for_widgets


class Subshells:
    """Those that are there, by their ids."""

    def __init__(self) -> None:
        self._known: dict[str, Subshell] = {}

    @property
    def hold(self) -> bool:
        """Tell whether one of them holds the executor where it is."""
        return any(subshell.holds for subshell in self._known.values())

    def created(self, name: str, replica: ReplicaId, *, for_widgets: bool) -> None:
        """Take note of one that a replica's process has made."""
        self._known[name] = Subshell(replica, for_widgets=for_widgets)

    def deleted(self, name: str) -> None:
        """Forget one that a client has ended."""
        self._known.pop(name, None)

    def ended_with(self, replica: ReplicaId) -> None:
        """Forget those of a process that is gone."""
        self._known = {name: one for name, one in self._known.items() if one.replica != replica}

    def lives_in(self, name: str, replica: ReplicaId) -> bool:
        """Tell whether a subshell is one of this replica's process."""
        subshell = self._known.get(name)
        return subshell is not None and subshell.replica == replica

    def was_given(self, name: str, msg_type: str) -> None:
        """Take note of what one is used for."""
        subshell = self._known.get(name)
        if subshell is not None:
            subshell.for_widgets = subshell.for_widgets or msg_type in COMM_TYPES
            subshell.runs_cells = subshell.runs_cells or msg_type == EXECUTE
