"""Pillow."""

from __future__ import annotations

from replkernel.state.library import Library

_HOMES = {
    "PIL.Image": ("pillow", "replkernel.state.libraries.pillow.pixels"),
    "PIL.ImageFont": ("pillow-font", "replkernel.state.libraries.pillow.fonts"),
    "PIL.ImageFile": ("pillow-file", "replkernel.state.libraries.pillow.picture_files"),
    "PIL.ImageDraw": ("pillow-draw", "replkernel.state.libraries.pillow.drawings"),
}

LIBRARY = Library(
    name="Pillow",
    reducers={module: home for module, (_, home) in _HOMES.items()},
    loaders={topic: (home,) for topic, home in _HOMES.values()},
)
