"""The hash that an instance of an attrs class remembers: it is the same for as long as the instance lives.

attrs pickles it as None. Sets and dictionaries that hold the instance know it by this hash, so it stays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_Kept = importlib.import_module("attr._make")._CacheHashWrapper


def reduce_hash(context: ReducerContext, kept: int) -> object:
    """Reduce a remembered hash to its number."""
    return make_hash, (int.__int__(kept),)


@loader("attrs:make_hash")
def make_hash(number: int) -> object:
    """Return a remembered hash (called by payloads)."""
    return _Kept(number)


EXACT = {_Kept: reduce_hash}
