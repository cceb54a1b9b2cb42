"""Whom the system kills first when memory runs out: a standby, then the executor; agent and router last.

Law: no process is ever made safer than it was born; what cannot be written is left as it is.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

EXECUTOR, STANDBY = 200, 400
"""What is added to the score, of 1000, with which a process was born. It costs nobody a privilege to add."""
SCORE_MAX = 1000


class KillOrder:
    """This process's place; children that user code starts have the same."""

    def __init__(self, file: Path = Path("/proc/self/oom_score_adj")) -> None:
        self._file = file
        self._now = 0
        self._born: int | None = None
        with contextlib.suppress(OSError, ValueError):
            self._born = int(file.read_text())

    def take(self, added: int) -> None:
        """Take the place of an executor or of a standby."""
        if self._born is None or added == self._now:
            return
        self._now = added
        with contextlib.suppress(OSError):
            self._file.write_text(str(min(self._born + added, SCORE_MAX)))
