"""How many threads Arrow uses."""

from __future__ import annotations

import sys
from importlib import import_module


def threads() -> dict[str, int] | None:
    """Return how many threads Arrow uses."""
    library = sys.modules.get("pyarrow")
    if library is None or not hasattr(library, "io_thread_count"):
        return None
    return {"cpu": library.cpu_count(), "io": library.io_thread_count()}


def set_threads(value: dict[str, int]) -> None:
    """Set it."""
    library = import_module("pyarrow")
    library.set_cpu_count(value["cpu"])
    library.set_io_thread_count(value["io"])
