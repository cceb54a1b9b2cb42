"""polars."""

from __future__ import annotations

from replkernel.state.libraries.polars.formats import formats, set_formats
from replkernel.state.library import Library, Setting

LIBRARY = Library(
    name="polars",
    reducers={"polars": "replkernel.state.libraries.polars.frames"},
    loaders={"polars": ("replkernel.state.libraries.polars.frames",)},
    settings={"numbers of polars": Setting(("Config",), formats, set_formats)},
)
