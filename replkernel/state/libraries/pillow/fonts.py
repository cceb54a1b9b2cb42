"""Pillow's fonts that were read from memory, the default one among them: Pillow would read its file again.

Law: imported only when Pillow's fonts are.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from PIL import ImageFont

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_font(context: ReducerContext, font: object) -> object:
    """Reduce a font from memory to what was read, and how it is drawn; leave others to Pillow."""
    held = vars(font)
    data = held.get("font_bytes")
    if type(data) is not bytes or type(held.get("path")) is not io.BytesIO:
        return NotImplemented
    context.module_needed("PIL.ImageFont")
    ways = held["size"], held["index"], held["encoding"], held["layout_engine"]
    return make_font, (type(font), data, *ways), held["path"], None, None, fill_font


@loader("pillow-font:make_font")
def make_font(cls: type[Any], data: bytes, *ways: object) -> object:
    """Return a font (called by payloads)."""
    return cls(io.BytesIO(data), *ways)


@loader("pillow-font:fill_font")
def fill_font(font: Any, source: object) -> None:
    """Give a font the file in memory that it was read from (called by payloads)."""
    font.path = source


FAMILIES = [(ImageFont.FreeTypeFont, reduce_font)]
