"""The interactive shell of a replica: stock's, with a history that the whole kernel shares.

Law: to user code it is ipykernel's ZMQInteractiveShell, by name and by type, for libraries look at both.
"""

from __future__ import annotations

from typing import Any

from ipykernel import zmqshell

from replkernel.kernel.history import ReplicatedHistory


class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    """ipykernel's shell; see `ReplicatedHistory` for the one difference."""

    def init_history(self) -> None:
        """Set up the history without opening its database."""
        configurables: list[Any] = self.configurables
        self.history_manager = ReplicatedHistory(shell=self, parent=self)
        configurables.append(self.history_manager)


ZMQInteractiveShell.__module__ = zmqshell.__name__
ReplicatedShell = ZMQInteractiveShell
