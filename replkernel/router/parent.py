"""The launcher that a kernel must not outlive: watched when the environment names it, as stock kernels do."""

from __future__ import annotations

import os
from collections.abc import Mapping

WATCH_MS = 1000
NEVER_MS = 3_600_000


class ParentWatch:
    """Tells when the parent process that JPY_PARENT_PID names is gone."""

    def __init__(self, env: Mapping[str, str]) -> None:
        text = env.get("JPY_PARENT_PID", "")
        named = int(text) if text.isdigit() else 0
        self._watches = named > 1
        self._parent = named if named == os.getppid() else 0

    @property
    def interval_ms(self) -> int:
        """Return how often to look."""
        return WATCH_MS if self._watches else NEVER_MS

    def vanished(self) -> bool:
        """Tell whether the parent is gone; true once only."""
        if not self._watches:
            return False
        parent = os.getppid()
        gone = parent != self._parent if self._parent else parent == 1
        if gone:
            self._watches = False
        return gone
