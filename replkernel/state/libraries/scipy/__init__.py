"""scipy."""

from __future__ import annotations

from replkernel.state.libraries.scipy.special_errors import set_special_errors, special_errors
from replkernel.state.library import Library, Setting

LIBRARY = Library(
    name="scipy",
    reducers={
        "scipy.spatial.transform": "replkernel.state.libraries.scipy.rotations",
        "scipy.spatial._ckdtree": "replkernel.state.libraries.scipy.search_trees",
    },
    loaders={"scipy": ("replkernel.state.libraries.scipy.rotations",)},
    settings={"errors of special functions": Setting(("special",), special_errors, set_special_errors)},
)
