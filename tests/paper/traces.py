"""Where the recorded traces are; they are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REPLKERNEL_TRACES"
PLACE = Path(os.environ.get(VARIABLE) or Path(__file__).parents[3] / "shared" / "traces")


class NoTrace(Exception):
    """A trace is not there; the text says how to name it."""


def trace(name: str) -> Path:
    """Return the path of a trace; raise NoTrace."""
    path = PLACE / name
    if not path.is_file():
        raise NoTrace(f"{path} is not there: set {VARIABLE} to the directory of the traces")
    return path
