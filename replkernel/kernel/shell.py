"""The interactive shell of a replica: stock's, with a history that the whole kernel shares.

Law: to user code it is ipykernel's ZMQInteractiveShell, by name and by type, for libraries look at both.
"""

from __future__ import annotations

import sys
from typing import Any

from ipykernel import zmqshell

from replkernel.kernel.history import ReplicatedHistory

LEAVING = (
    "replkernel: this ends one process; the notebook goes on, with its variables, on another replica. "
    "To begin anew, restart the kernel.\n"
)


class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    """ipykernel's shell; see `ReplicatedHistory` for what differs, beside the word that `exit` says."""

    def init_history(self) -> None:
        """Set up the history without opening its database."""
        configurables: list[Any] = self.configurables
        self.history_manager = ReplicatedHistory(shell=self, parent=self)
        configurables.append(self.history_manager)

    def ask_exit(self) -> None:
        """Leave this process once the cell is over; it takes no other cell."""
        super().ask_exit()  # type: ignore[no-untyped-call]
        if self.exit_now:
            sys.stderr.write(LEAVING)


ZMQInteractiveShell.__module__ = zmqshell.__name__
ReplicatedShell = ZMQInteractiveShell
