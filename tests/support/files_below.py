"""The files below a directory in which others make and remove directories meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path


def files_below(directory: Path, pattern: str) -> list[Path]:
    """Return what matches; look anew where a directory goes just then, by which Python's own `glob` fails."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return list(directory.glob(pattern))
