"""Pillow's drawings: the picture that one draws on, and its settings.

Law: imported only when Pillow's drawings are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PIL import ImageDraw

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_OF_PICTURE = ("im", "draw", "_image", "palette")
_Drawing: object = ImageDraw.ImageDraw


def reduce_drawing(context: ReducerContext, drawing: object) -> object:
    """Reduce a drawing to its picture and its settings."""
    attributes = vars(drawing)
    image = attributes.get("_image")
    if image is None or image.im is not attributes.get("im"):
        return NotImplemented
    settings = {name: value for name, value in attributes.items() if name not in _OF_PICTURE}
    return make_drawing, (type(drawing), image), settings, None, None, fill_drawing


@loader("pillow-draw:make_drawing")
def make_drawing(cls: type[Any], image: object) -> object:
    """Return a drawing on a picture (called by payloads)."""
    return cls(image)


@loader("pillow-draw:fill_drawing")
def fill_drawing(drawing: object, settings: dict[str, Any]) -> None:
    """Give a drawing its settings (called by payloads)."""
    vars(drawing).update(settings)


FAMILIES = [(_Drawing, reduce_drawing)]
