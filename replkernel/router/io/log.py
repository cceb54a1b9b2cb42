"""The router's log: a file of its own, and the terminal for what a user must read, each sentence once.

Lines gather in memory until `flush`, which the router's loop calls at its first rest; warnings do not wait.
Law: bounded; never a message's content, never a secret; a log that cannot be written is done without.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TextIO

LOG_BYTES_MAX = 1024 * 1024
SHOWN_MAX = 1000
FILES_MAX = 50
"""How many routers' logs are kept; the oldest go first."""


def show(text: str) -> None:
    """Print one line on the terminal, if there is one."""
    if sys.stderr is not None:
        sys.stderr.write(f"replkernel: {text}\n")
        sys.stderr.flush()


def _private(path: Path) -> int:
    """Open a file for appending that only its owner can read."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class RouterLog:
    """One line an event, with its time; warnings also go to the terminal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._size = 0
        self.unwritten = False
        """Whether lines are in memory only."""
        self._shown: set[str] = set()

    def write(self, text: str, *, shown: bool = False) -> None:
        """Append a line; with `shown`, print it on the terminal unless it has been there already."""
        if shown and text not in self._shown and len(self._shown) < SHOWN_MAX:
            self._shown.add(text)
            show(text)
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n"
        try:
            self._open().write(line)
        except OSError:
            return
        self._size += len(line)
        self.unwritten = True
        if shown:
            self.flush()

    def flush(self) -> None:
        """Write what is still in memory."""
        if self.unwritten and self._file is not None:
            with contextlib.suppress(OSError):
                self._file.flush()
        self.unwritten = False

    def _open(self) -> TextIO:
        if self._file is None or self._size > LOG_BYTES_MAX:
            self.close()
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > LOG_BYTES_MAX // 2:
                self._path.replace(self._path.with_suffix(".log.1"))
            else:
                self._make_room()
            self._file = os.fdopen(_private(self._path), "a", encoding="utf-8")
            self._size = 0
        return self._file

    def _make_room(self) -> None:
        files = sorted(self._path.parent.glob("router-*.log*"), key=lambda file: file.stat().st_mtime)
        for file in files[: max(0, len(files) + 1 - FILES_MAX)]:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
            self.unwritten = False
