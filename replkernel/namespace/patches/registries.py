"""Places that a notebook changes by calling a library: open figures, hooks of all modules, colour maps.

Law: looking costs a few microseconds while nothing is there, and imports nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from replkernel.namespace.patches import pyplot
from replkernel.namespace.patches.places import FIGURES, ITEM, Place

TORCH_MODULE = "torch.nn.modules.module"


def changed_places() -> Iterator[Place]:
    """Find the places that hold something now, and nothing when their library was imported."""
    helpers: Any = sys.modules.get(pyplot.MODULE)
    if helpers is not None and getattr(getattr(helpers, "Gcf", None), "figs", None):
        yield Place(FIGURES, pyplot.MODULE, pyplot.OWNER, "")
    yield from _module_hooks()
    yield from _colormaps()


def _module_hooks() -> Iterator[Place]:
    held = vars(sys.modules.get(TORCH_MODULE, object))
    for name in _HOOKS if "Module" in held else ():
        for key in held.get(name) or ():
            yield Place(ITEM, TORCH_MODULE, name, json.dumps(key))


_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)


def _colormaps() -> Iterator[Place]:
    registry = getattr(sys.modules.get("matplotlib"), "colormaps", None)
    maps, built_in = getattr(registry, "_cmaps", None), getattr(registry, "_builtin_cmaps", ())
    if not maps or len(maps) <= len(built_in):
        return
    of_library = vars(sys.modules.get("seaborn.cm", object))
    for name in maps.keys() - set(built_in):
        if name.removesuffix("_r") not in of_library:
            yield Place(ITEM, "matplotlib", "colormaps._cmaps", json.dumps(name))
