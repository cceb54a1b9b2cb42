"""Pictures that Pillow reads from a file: they travel with their pixels, those of many frames stay.

Law: imported only when Pillow's files are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PIL import ImageFile

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import kind_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

PROTOCOL = 5
_PLAIN = (bool, int, float, str, type(None))
_TABLES = (dict, list, tuple)
_OF_FILE = ("tile", "info", "_size")
"""What is read again, or told with the pixels."""
_TAGS = ("tag", "tag_v2")
"""What a picture in TIFF has of its file: objects of Pillow's own."""
_FOUND = ("_n_frames", "_is_animated")
"""What a picture remembers of being asked for its frames."""

_COUNTS = ("n_frames", "_n_frames")
_PictureFile: object = ImageFile.ImageFile


def reduce_picture_file(context: ReducerContext, picture: Any) -> object:
    """Reduce a picture as Pillow does, by the frame that is shown, with what it knows of its file."""
    context.module_needed(type(picture).__module__)
    if _frames(picture) > 1:
        raise CannotTravel(
            "The frames of a picture are read from its file by this process; copy() keeps one."
        )
    make, arguments, state = picture.__reduce_ex__(PROTOCOL)[:3]
    plain = {name: value for name, value in sorted(vars(picture).items()) if _goes_along(name, value)}
    return make, arguments, (state, plain), None, None, fill_picture


@loader("pillow-file:fill_picture")
def fill_picture(picture: ImageFile.ImageFile, state: tuple[Any, dict[str, Any]]) -> None:
    """Give a picture its pixels, and what it knew of its file (called by payloads)."""
    told, plain = state
    picture.__setstate__(told)
    for name, value in plain.items():
        vars(picture).setdefault(name, value)


def _goes_along(name: str, value: object) -> bool:
    """Tell whether an attribute is a plain value or a table of a file's (texts, how it was packed)."""
    kind = kind_of(value)
    return kind in _PLAIN or name in _TAGS or (kind in _TABLES and name not in _OF_FILE)


def _frames(picture: Any) -> int:
    """Return how many frames a picture's file has, as far as that can be told."""
    attributes = vars(picture)
    told = next((attributes[name] for name in _COUNTS if attributes.get(name)), None)
    if told is None and attributes.get("_fp") is not None:
        before = {name: attributes[name] for name in _FOUND if name in attributes}
        try:
            told = picture.n_frames
        except Exception:  # the file is closed, or it is no whole one
            told = None
        attributes.update(before)
    return told if type(told) is int else 1


FAMILIES = [(_PictureFile, reduce_picture_file)]
"""All kinds of files that Pillow reads."""
