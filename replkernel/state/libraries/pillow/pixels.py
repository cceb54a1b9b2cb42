"""Pillow's access to the pixels of a picture (`im.load()`): of a picture that a variable holds.

Law: imported only when Pillow is; the word that is read from an access is compared, and never followed.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from PIL import Image

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_sample = Image.new("L", (1, 1))
_access: object = _sample.load()
_AT = object.__basicsize__
_KNOWN = ctypes.c_ssize_t.from_address(id(_access) + _AT).value == id(_sample.im)
"""Whether an access has the picture's memory where it is known to be."""


def reduce_access(context: ReducerContext, access: object) -> object:
    """Reduce an access to its picture."""
    memory = ctypes.c_ssize_t.from_address(id(access) + _AT).value if _KNOWN else 0
    for value in list(context.namespace.values()):
        if isinstance(value, Image.Image) and id(vars(value).get("_im")) == memory:
            context.touched = True
            return take_access, (value,)
    raise CannotTravel("No variable holds the picture whose pixels it gives.")


@loader("pillow:take_access")
def take_access(picture: Image.Image) -> object:
    """Return an access to a picture's pixels (called by payloads)."""
    return picture.load()


EXACT: dict[type, Any] = {type(_access): reduce_access}
