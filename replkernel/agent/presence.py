"""The agent's file, by which others find it, and its lock: put back when somebody removes them.

Law: the file is there only while the agent listens, readable by its user alone, and never another agent's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

from replkernel.own_file import replace_own

KEEP_S = 5.0
"""So often it is looked whether the file is there."""

log = logging.getLogger(__name__)


class Presence:
    """The file and the lock of one agent in its `directory`; `on_removed` is told a sentence for users."""

    def __init__(
        self, directory: Path, document: dict[str, object], on_removed: Callable[[str], None]
    ) -> None:
        self._file = directory / "agent.json"
        self._lock_path = directory / "agent.lock"
        self._directory = directory
        self._document = document
        self._on_removed = on_removed
        self._lock = -1

    def announce(self) -> None:
        """Write the file; raises OSError."""
        replace_own(self._file, json.dumps(self._document).encode())

    async def keep(self) -> None:
        """Look for the file again and again, and put it back unless another agent has taken the place."""
        while True:
            await asyncio.sleep(KEEP_S)
            if self._file.exists():
                continue
            try:
                if not self._return():
                    log.warning("another agent has taken the place of this one in %s", self._directory)
                    return
            except OSError as error:
                log.warning("%s cannot be written again: %s", self._file, error)

    def _return(self) -> bool:
        """Make directory, lock and file anew; tell whether they are ours."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        removed = not self._lock_path.exists()
        if removed:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            os.write(lock, str(os.getpid()).encode())
            self._lock = lock
        self.announce()
        sentence = (
            f"The files of this host's agent were removed below {self._directory} while it runs: until the "
            "kernel is restarted, a crash of the host costs what the last checkpoint in the store lacks."
        )
        log.warning("%s", sentence)
        if removed:
            self._on_removed(sentence)
        return True

    def leave(self) -> None:
        """Remove the file, if it is ours."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if json.loads(self._file.read_text()).get("pid") == os.getpid():
                self._file.unlink()
