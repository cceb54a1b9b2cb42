"""matplotlib."""

from __future__ import annotations

from replkernel.state.libraries.matplotlib.interactive import interactive, set_interactive
from replkernel.state.libraries.matplotlib.settings import ColourNamesPart, MatplotlibPart
from replkernel.state.library import Library, Setting

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
