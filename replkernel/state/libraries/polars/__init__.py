"""polars."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from replkernel.state.library import Library, Setting


def formats() -> dict[str, Any] | None:
    """Return how polars shows numbers; what else it is told is in the environment."""
    library: Any = sys.modules.get("polars")
    return library and dict(json.loads(library.Config.save())["direct"])


def set_formats(value: dict[str, Any]) -> None:
    """Set it."""
    import_module("polars").Config.load(json.dumps({"environment": {}, "direct": value}))


LIBRARY = Library(
    name="polars",
    reducers={"polars": "replkernel.state.libraries.polars.frames"},
    loaders={"polars": ("replkernel.state.libraries.polars.frames",)},
    settings={"numbers of polars": Setting(("Config",), formats, set_formats)},
)
