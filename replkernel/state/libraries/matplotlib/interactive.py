"""Whether pyplot draws at once."""

from __future__ import annotations

import sys
from importlib import import_module


def interactive() -> bool | None:
    """Return whether pyplot draws at once."""
    library = sys.modules.get("matplotlib")
    if library is None or "matplotlib.pyplot" not in sys.modules:
        return None
    return bool(library.is_interactive())


def set_interactive(value: bool) -> None:
    """Set it; choosing a backend, which happens at first use, would set it as well and so comes first."""
    pyplot = import_module("matplotlib.pyplot")
    pyplot.get_backend()
    pyplot._get_backend_mod()
    import_module("matplotlib").interactive(value)
