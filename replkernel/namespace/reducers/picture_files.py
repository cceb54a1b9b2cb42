"""Pictures that Pillow reads from a file: one travels with its pixels, one with more frames stays.

Law: imported only when Pillow's files are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PIL import ImageFile

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

_COUNTS = ("n_frames", "_n_frames")
_PictureFile: Any = ImageFile.ImageFile


def reduce_picture_file(pickler: CapturePickler, picture: Any) -> Any:
    """Leave a picture to Pillow, which copies the frame that is shown and forgets the file."""
    pickler.module_needed(type(picture).__module__)
    if _frames(picture) > 1:
        raise CannotTravel(
            "The frames of a picture are read from its file by this process; copy() keeps one."
        )
    return NotImplemented


def _frames(picture: Any) -> int:
    """Return how many frames a picture's file has, as far as that can be told."""
    attributes = vars(picture)
    told = next((attributes[name] for name in _COUNTS if attributes.get(name)), None)
    if told is None and attributes.get("_fp") is not None:
        try:
            told = picture.n_frames
        except Exception:  # the file is closed, or it is no whole one
            told = None
    return told if type(told) is int else 1


FAMILIES = [(_PictureFile, reduce_picture_file)]
"""All kinds of files that Pillow reads."""
