"""scipy."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from replkernel.state.library import Library, Setting


def special_errors() -> dict[str, str] | None:
    """Return what the special functions of scipy do on errors."""
    library: Any = sys.modules.get("scipy.special")
    return library and dict(library.geterr())


def set_special_errors(value: dict[str, str]) -> None:
    """Set it."""
    import_module("scipy.special").seterr(**value)


LIBRARY = Library(
    name="scipy",
    reducers={
        "scipy.spatial.transform": "replkernel.state.libraries.scipy.rotations",
        "scipy.spatial._ckdtree": "replkernel.state.libraries.scipy.search_trees",
    },
    loaders={"scipy": ("replkernel.state.libraries.scipy.rotations",)},
    settings={"errors of special functions": Setting(("special",), special_errors, set_special_errors)},
)
