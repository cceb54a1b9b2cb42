"""The options of xarray."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from replkernel.state.library import Library, Setting


def options() -> dict[str, Any] | None:
    """Return what ``xarray.set_options`` sets."""
    library: Any = sys.modules.get("xarray.core.options")
    return library and dict(library.OPTIONS)


def set_options(value: dict[str, Any]) -> None:
    """Set the options that differ; what xarray checks to be a tuple came as a list."""
    library = import_module("xarray.core.options")
    told = {name: tuple(held) if type(held) is list else held for name, held in value.items()}
    library.set_options(**{name: held for name, held in told.items() if library.OPTIONS.get(name) != held})


LIBRARY = Library(
    name="xarray",
    settings={"options of xarray": Setting(("set_options",), options, set_options)},
)
