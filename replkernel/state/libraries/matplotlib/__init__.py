"""matplotlib."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from replkernel.state.libraries.matplotlib.settings import ColourNamesPart, MatplotlibPart
from replkernel.state.library import Library, Setting


def interactive() -> bool | None:
    """Return whether pyplot draws at once."""
    library: Any = sys.modules.get("matplotlib")
    if library is None or "matplotlib.pyplot" not in sys.modules:
        return None
    return bool(library.is_interactive())


def set_interactive(value: bool) -> None:
    """Set it; choosing a backend, which happens at first use, would set it as well and so comes first."""
    pyplot = import_module("matplotlib.pyplot")
    pyplot.get_backend()
    pyplot._get_backend_mod()
    import_module("matplotlib").interactive(value)


LIBRARY = Library(
    name="matplotlib",
    reducers={
        "matplotlib.cbook": "replkernel.state.libraries.matplotlib.callbacks",
        "matplotlib.figure": "replkernel.state.libraries.matplotlib.figures",
        "matplotlib.transforms": "replkernel.state.libraries.matplotlib.transforms",
    },
    loaders={
        "matplotlib": ("replkernel.state.libraries.matplotlib.figures",),
        "matplotlib-transforms": ("replkernel.state.libraries.matplotlib.transforms",),
    },
    parts=(MatplotlibPart, ColourNamesPart),
    settings={
        "interactive plotting": Setting(("ioff", "ion(", "interactive"), interactive, set_interactive),
    },
)
