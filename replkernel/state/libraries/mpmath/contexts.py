"""mpmath's contexts, which are numbers' classes and settings at once: each by mpmath's own name for it.

Law: imported only when mpmath is; what a notebook sets in one is a place of the book.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from replkernel.state.capture.sentinels import attribute

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

mpmath: object = importlib.import_module("mpmath")
NAMES = ("mp", "fp", "iv")


def reduce_context(context: ReducerContext, own: object) -> object:
    """Reduce a context to its name; one that the notebook made, as it is."""
    for name in NAMES:
        if getattr(mpmath, name) is own:
            context.module_needed("mpmath")
            context.unlinked.add(id(own))
            return attribute, ("mpmath", name)
    return NotImplemented


FAMILIES = [(importlib.import_module("mpmath.ctx_base").StandardBaseContext, reduce_context)]
